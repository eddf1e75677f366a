-- End the leases of messages whose functions returned: keep their results, delete the messages.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> deliveries that were given back unused
--   KEYS[4]  hash  what this worker holds (shared/strike)
--   KEYS[5], KEYS[6]  stream and string: the event log, and how many events could not be written
--   KEYS[7..] hash  result record of each message, in order
--   ARGV     strikes; name of the queue; then per message: id, receive count, seconds to keep the result, number of
--            words, words; events (shared/events)
--
-- Returns only what was not deleted, position (from 0) and verdict in turn: 0 no such message, -1 lease lost.
--#include shared/strike
--#include shared/remove
--#include shared/results
--#include shared/events
local messages, settings, releases, holds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local log, dropped = KEYS[5], KEYS[6]

local at = strike(holds, 1)
local queue, starts, fields, n = ARGV[at], {}, {}, 0
at = at + 1
while at <= last_argument do
  n = n + 1
  starts[n], fields[2 * n - 1], fields[2 * n] = at, ARGV[at], ARGV[at] .. ":rc"
  at = at + 4 + tonumber(ARGV[at + 3])
end
local stored = redis.call("HMGET", settings, unpack(fields))

local function keep(key, first, id, body)
  local words = tonumber(ARGV[first + 3])
  local added = set_fields(key, "body", body or "", unpack(ARGV, first + 4, first + 3 + words))
  if not added then return end
  -- All fields are new: there was no record, as for messages of other clients. The sender writes these otherwise.
  if added == words / 2 + 1 then redis.call("HSET", key, "queue", queue, "message", id) end
  redis.call("EXPIRE", key, ARGV[first + 2])
end

-- A removal comes first: after it, a server at its memory limit takes everything else that this script writes.
redis.call("HDEL", holds, "")
local done, refused = {}, {}
for i = 1, n do
  local id, receive_count = ARGV[starts[i]], ARGV[starts[i] + 1]
  if stored[2 * i] == receive_count then
    done[#done + 1] = id
    if receive_count ~= "1" then redis.call("HDEL", releases, id, id .. ":crashes", id .. ":lives") end
    keep(KEYS[6 + i], starts[i], id, stored[2 * i - 1])
    log_event(log, dropped, i, "succeeded")
  else
    local is_there = redis.call("ZSCORE", messages, id)
    refused[#refused + 1] = i - 1
    refused[#refused + 1] = is_there and -1 or 0
    if is_there then log_event(log, dropped, i, "lost") end
  end
end
remove(messages, settings, done)
return refused
