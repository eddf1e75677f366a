-- Take ready messages for a worker: from the first queue first, then from the next, until there is no more room.
--
--   KEYS   per queue: zset message id -> time it becomes visible (ms); hash attributes, counters, bodies; hash of
--          releases, message id -> deliveries that were given back unused
--   ARGV   how many messages there is room for; the shortest lease in ms
--
-- Returns the server's time (ms), the ms until the next message becomes visible (-1: none is waiting), the number of
-- queues that cannot be read and their positions, and then per message: queue position, id, body, receive count,
-- first receive, releases.
--#include shared/clock
--#include shared/hold
--#include shared/hand_out
local room, shortest_lease_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local unreadable, out, n, next_ms = {}, {}, 0, -1

local function fetch(position, messages, settings, releases)
  local visibility_s = tonumber(redis.call("HGET", settings, "vt") or "")
  if not visibility_s then
    unreadable[#unreadable + 1] = position
    return
  end
  local visible_ms = now_ms + math.max(visibility_s * 1000, shortest_lease_ms)
  room = room - hand_out(messages, settings, room, visible_ms, function(id, body, receive_count, first_received)
    -- Only a message that was received before can have been given back.
    local released = receive_count ~= "1" and redis.call("HGET", releases, id) or "0"
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = position, id, body, receive_count
    out[n + 5], out[n + 6], n = first_received, released, n + 6
  end)
  local head = redis.call("ZRANGE", messages, 0, 0, "WITHSCORES")[2]
  if head then
    local wait_ms = math.max(0, tonumber(head) - now_ms)
    if next_ms < 0 or wait_ms < next_ms then next_ms = wait_ms end
  end
end

for position = 1, #KEYS / 3 do
  if room <= 0 then next_ms = 0 break end
  -- A key of the wrong type raises at the first read of a queue, before anything is written; the others go on.
  local before = n
  if not pcall(fetch, position, KEYS[3 * position - 2], KEYS[3 * position - 1], KEYS[3 * position]) then
    unreadable[#unreadable + 1], n = position, before
  end
end

local reply = {integer(now_ms), next_ms, #unreadable}
for _, position in ipairs(unreadable) do reply[#reply + 1] = position end
local first = #reply
for i = 1, n do reply[first + i] = out[i] end
return reply
