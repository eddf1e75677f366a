-- Read the attributes and counters of a queue. The hidden count is exact: it is relative to this millisecond, not to the
-- start of the current second.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--
-- Returns the nine values of parts/attributes. Errors: QueueNotFound.
--#include parts/clock
--#include parts/attributes
if redis.call("HEXISTS", KEYS[2], "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end
return read_attributes(KEYS[1], KEYS[2])
