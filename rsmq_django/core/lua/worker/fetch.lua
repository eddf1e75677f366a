-- Take ready messages for a worker: from the first queue first, then from the next, until there is no more room.
--
--   KEYS   per queue: zset message id -> time it becomes visible (ms); hash attributes, counters, bodies; hash of
--          releases, message id -> deliveries that were given back unused; hash of phantoms that were removed
--   ARGV   how many messages there is room for; the shortest lease in ms; per queue "s" or "ms", the unit of its
--          visibility timeout
--
-- Returns the server's time (ms), the ms until the next message becomes visible (-1: none is waiting), the number of
-- queues that cannot be read and their positions, and then per message: queue position, id, body, receive count,
-- first receive, releases.
--#include shared/clock
--#include shared/units
--#include shared/counters
--#include shared/hold
--#include shared/phantoms
--#include shared/hand_out
local room, shortest_lease_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local unreadable, out, n, next_ms = {}, {}, 0, -1

local function fetch(position, messages, settings, releases, phantoms)
  local own_ms = given_or_own_ms(ARGV[2 + position], redis.call("HGET", settings, "vt"))
  if not own_ms then
    unreadable[#unreadable + 1] = position
    return
  end
  local visible_ms = now_ms + math.max(own_ms, shortest_lease_ms)
  local function give(id, body, receive_count, first_received)
    -- Only a message that was received before can have been given back.
    local released = receive_count ~= "1" and redis.call("HGET", releases, id) or "0"
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = position, id, body, receive_count
    out[n + 5], out[n + 6], n = first_received, released, n + 6
  end
  room = room - hand_out(messages, settings, phantoms, room, visible_ms, give)
  local head = redis.call("ZRANGE", messages, 0, 0, "WITHSCORES")[2]
  if head then
    local wait_ms = math.max(0, tonumber(head) - now_ms)
    if next_ms < 0 or wait_ms < next_ms then next_ms = wait_ms end
  end
end

for position = 1, #KEYS / 4 do
  if room <= 0 then next_ms = 0 break end
  -- A key of the wrong type raises at the first read of a queue, before anything is written; the others go on.
  local before = n
  if not pcall(fetch, position, unpack(KEYS, 4 * position - 3, 4 * position)) then
    unreadable[#unreadable + 1], n = position, before
  end
end

local reply = {integer(now_ms), next_ms, #unreadable}
for _, position in ipairs(unreadable) do reply[#reply + 1] = position end
local first = #reply
for i = 1, n do reply[first + i] = out[i] end
return reply
