-- Read the list of workers. Read-only.
--
--   KEYS[1]  zset  worker id -> time of its last heartbeat (ms)
--
-- Returns the server's time (ms), then id and last heartbeat of up to 1000 workers, the latest first.
--#include parts/clock
local reply = redis.call("ZREVRANGE", KEYS[1], 0, 999, "WITHSCORES")
table.insert(reply, 1, integer(now_ms))
return reply
