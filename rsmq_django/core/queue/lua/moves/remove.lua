-- Delete messages that are unchanged since the caller read them, with our additional data of them.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> failure record; KEYS[4] hash of releases
--   ARGV     per message: id, receive count when it was read ("0": none)
--
-- Returns per message: 1 deleted, 0 it is gone, -1 received since. Errors: QueueNotFound.
--#include queue/moves/parts/seen
--#include queue/moves/parts/discarding
local messages, settings, failures, releases = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end

local ids, receive_counts = receipts_from(1, 2)
local verdicts = verdicts_since(messages, settings, ids, receive_counts)
local to_remove = {}
for n, id in ipairs(ids) do
  if verdicts[n] == 1 then to_remove[#to_remove + 1] = id end
end
discard(messages, settings, failures, releases, to_remove)
return verdicts
