-- Take ready messages for a worker: from the first queue first, then from the next, until there is no more room.
--
--   KEYS[1]  hash  what this worker holds: message id -> "receive count queue"; expires when nobody renews it
--   KEYS[2..]  per queue: zset message id -> time it becomes visible (ms); hash attributes, counters, bodies; hash
--          message id -> deliveries given back unused, id:crashes -> processes that died; hash of removed phantoms
--   ARGV   how many messages there is room for; the shortest lease in ms; per queue "s" or "ms", the unit of its
--          visibility timeout, and its name
--
-- Returns the server's time (ms), the ms until the next message becomes visible (-1: none is waiting), the number of
-- queues that cannot be read and their positions, and then per message: queue position, id, body, receive count,
-- first receive, and how often it was given back unused and its process died ("0", or two numbers).
--#include shared/clock
--#include shared/units
--#include shared/counters
--#include shared/hold
--#include shared/phantoms
--#include shared/hand_out
--#include shared/history
local holds, room, shortest_lease_ms = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local unreadable, out, n, next_ms, held, longest_ms = {}, {}, 0, -1, {}, 0

local function fetch(position, messages, settings, deliveries, phantoms)
  local own_ms, name = given_or_own_ms(ARGV[2 * position + 1], redis.call("HGET", settings, "vt")), ARGV[2 * position + 2]
  if not own_ms then
    unreadable[#unreadable + 1] = position
    return
  end
  local lease_ms = math.max(own_ms, shortest_lease_ms)
  local function give(id, body, receive_count, first_received)
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = position, id, body, receive_count
    out[n + 5], out[n + 6], n = first_received, history(deliveries, id, receive_count), n + 6
    held[#held + 1] = id
    held[#held + 1] = receive_count .. " " .. name
  end
  room = room - hand_out(messages, settings, phantoms, room, now_ms + lease_ms, give)
  longest_ms = math.max(longest_ms, lease_ms)
  local wait_ms = ms_until_next(messages)
  if wait_ms and (next_ms < 0 or wait_ms < next_ms) then next_ms = wait_ms end
end

for position = 1, (#KEYS - 1) / 4 do
  if room <= 0 then next_ms = 0 break end
  -- A key of the wrong type raises at the first read of a queue, before anything is written; the others go on.
  local before, held_before = n, #held
  if not pcall(fetch, position, unpack(KEYS, 4 * position - 2, 4 * position + 1)) then
    unreadable[#unreadable + 1], n = position, before
    for at = #held, held_before + 1, -1 do held[at] = nil end
  end
end

if #held > 0 then
  redis.call("HSET", holds, unpack(held))
  redis.call("PEXPIRE", holds, integer(10 * longest_ms + 60000))
end

local reply = {integer(now_ms), next_ms, #unreadable}
for _, position in ipairs(unreadable) do reply[#reply + 1] = position end
local first = #reply
for i = 1, n do reply[first + i] = out[i] end
return reply
