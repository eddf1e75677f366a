-- Read which workers there are. Nothing is changed.
--
--   KEYS[1]  zset  worker id -> time of its last beat (ms)
--
-- Returns the server's time (ms), then id and last beat of up to 1000 workers, the latest first.
--#include shared/clock
local reply = redis.call("ZREVRANGE", KEYS[1], 0, 999, "WITHSCORES")
table.insert(reply, 1, integer(now_ms))
return reply
