-- Delete messages whose leases are still valid.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> failure record; KEYS[4] hash of releases (parts/past)
--   ARGV     per message: id, receive count or "" for no fence
--
-- Returns 1 deleted, 0 no such message, -1 lease lost, in the order given; the number alone when it is one message.
-- Errors: QueueNotFound.
--#include parts/past
local messages, settings, failures, releases = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

-- One message: the removal itself reports whether it existed. Its fields are removed only then, so an id such as "vt" can
-- never remove an attribute.
if #ARGV == 2 then
  local id, receive_count = ARGV[1], ARGV[2]
  local stored = redis.call("HMGET", settings, "vt", id .. ":rc")
  if not stored[1] then return redis.error_reply("RSMQ QueueNotFound") end
  if receive_count ~= "" and stored[2] ~= receive_count then
    return redis.call("ZSCORE", messages, id) and -1 or 0
  end
  if redis.call("ZREM", messages, id) == 0 then return 0 end
  redis.call("HDEL", settings, id, id .. ":rc", id .. ":fr")
  if receive_count ~= "1" then forget_past(releases, failures, id) end
  return 1
end
--#include parts/fence
--#include parts/remove
if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end

local ids, verdicts = check_receipts(messages, settings, 1)
local to_remove = {}
for n, id in ipairs(ids) do
  if verdicts[n] == 1 then to_remove[#to_remove + 1] = id end
end
remove(messages, settings, to_remove)
for n, id in ipairs(ids) do
  if verdicts[n] == 1 and ARGV[2 * n] ~= "1" then forget_past(releases, failures, id) end
end
return verdicts
