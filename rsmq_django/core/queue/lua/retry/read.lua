-- Read the progress of a retry plan.
--
--   KEYS[1]  hash  the plan; KEYS[2] zset: its messages that have not ended -> due (ms)
--
-- Returns the server's time (ms), the number of messages that have not ended, how many of them are not due, due time of the
-- last one ("" for none), and fields and values; null when the plan does not exist.
--#include parts/clock
local fields = redis.call("HGETALL", KEYS[1])
if #fields == 0 then return false end
local last = redis.call("ZREVRANGE", KEYS[2], 0, 0, "WITHSCORES")
return {now_ms, redis.call("ZCARD", KEYS[2]), redis.call("ZCOUNT", KEYS[2], "(" .. integer(now_ms), "+inf"), last[2] or "", fields}
