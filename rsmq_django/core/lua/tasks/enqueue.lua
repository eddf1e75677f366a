-- Put task messages on a queue, in the order given, and note for each that its result is awaited.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3..] hash  result record of each message, in order; none when no results are kept
--   ARGV     delay in ms, or the unit of the queue's own; channel; seconds that an unfinished record is kept; queue name;
--            then per message: suffix, body
--
-- Returns the new message ids. Errors: QueueNotFound, MessageTooLong <bytes> <limit>; nothing is stored then.
--#include shared/clock
--#include shared/ids
--#include shared/units
--#include shared/counters
--#include shared/store
local ids = store(KEYS[1], KEYS[2], ARGV[1], ARGV[2], 5)
if ids.err then return ids end
for n = 3, #KEYS do
  redis.call("HSET", KEYS[n], "status", "READY", "queue", ARGV[4], "message", ids[n - 2])
  redis.call("EXPIRE", KEYS[n], ARGV[3])
end
return ids
