-- End the leases of messages whose functions returned, and whose results nobody keeps: delete them.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> deliveries that were given back unused
--   KEYS[4]  hash  what this worker holds (shared/strike)
--   ARGV     strikes; then per message: id, receive count
--
-- Returns only what was not deleted, position (from 0) and verdict in turn: 0 no such message, -1 lease lost.
--#include shared/strike
local messages, settings, releases, holds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local first = strike(holds, 1)
local count_fields, n = {}, 0
for at = first, #ARGV, 2 do
  n = n + 1
  count_fields[n] = ARGV[at] .. ":rc"
end
local stored = redis.call("HMGET", settings, unpack(count_fields))

local ids, fields, d, refused = {}, {}, 0, {}
for i = 1, n do
  local id, receive_count = ARGV[first + 2 * i - 2], ARGV[first + 2 * i - 1]
  if stored[i] == receive_count then
    d = d + 1
    ids[d], fields[3 * d - 2], fields[3 * d - 1], fields[3 * d] = id, id, count_fields[i], id .. ":fr"
    if receive_count ~= "1" then redis.call("HDEL", releases, id, id .. ":crashes", id .. ":lives") end
  else
    refused[#refused + 1] = i - 1
    refused[#refused + 1] = redis.call("ZSCORE", messages, id) and -1 or 0
  end
end
if d > 0 then
  redis.call("ZREM", messages, unpack(ids))
  redis.call("HDEL", settings, unpack(fields))
end
return refused
