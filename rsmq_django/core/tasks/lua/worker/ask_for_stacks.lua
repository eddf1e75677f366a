-- Request the stacks of a worker process's running tasks. Its supervisor reads the request with its next heartbeat.
--
--   KEYS[1]  zset    worker id -> time of its last heartbeat (ms)
--   KEYS[2]  string  the request: when it was made (ms); expires
--   KEYS[3]  string  the reply to an earlier request
--   ARGV     worker id; seconds after which the request expires
--
-- Returns 1, or 0 when the worker does not exist any more.
--#include parts/clock
if not redis.call("ZSCORE", KEYS[1], ARGV[1]) then return 0 end
redis.call("DEL", KEYS[2], KEYS[3])
redis.call("SET", KEYS[2], integer(now_ms), "EX", ARGV[2])
return 1
