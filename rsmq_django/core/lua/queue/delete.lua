-- Delete messages whose holders may still act on them.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   ARGV     per message: id, receive count or "" for no fence
--
-- Returns 1 deleted, 0 no such message, -1 lease lost, in the order given. Errors: QueueNotFound.
--#include shared/fence
--#include shared/remove
local messages, settings = KEYS[1], KEYS[2]

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end

local ids, verdicts = check_receipts(messages, settings, 1)
local doomed = {}
for n, id in ipairs(ids) do
  if verdicts[n] == 1 then doomed[#doomed + 1] = id end
end
remove(messages, settings, doomed)
return verdicts
