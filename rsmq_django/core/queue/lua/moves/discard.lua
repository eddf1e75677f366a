-- Delete messages by id, including messages in flight, with our additional data of them.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> failure record; KEYS[4] hash of releases
--   ARGV     ids
--
-- Returns 1 deleted, 0 no such message, in the order given. Errors: QueueNotFound.
--#include queue/moves/parts/seen
--#include queue/moves/parts/discarding
local messages, settings, failures, releases = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end

local verdicts, to_remove, seen = {}, {}, {}
local scores = redis.call("ZMSCORE", messages, unpack(ARGV))
for n, id in ipairs(ARGV) do
  verdicts[n] = scores[n] and not seen[id] and 1 or 0
  seen[id] = true
  if verdicts[n] == 1 then to_remove[#to_remove + 1] = id end
end
discard(messages, settings, failures, releases, to_remove)
return verdicts
