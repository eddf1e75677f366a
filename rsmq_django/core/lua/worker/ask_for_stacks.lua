-- Ask a worker process where its running tasks are in their code. Its supervisor hears it at its next heartbeat.
--
--   KEYS[1]  zset    worker id -> time of its last heartbeat (ms)
--   KEYS[2]  string  the request: when it was made (ms); expires
--   KEYS[3]  string  the answer to an earlier request
--   ARGV     worker id; seconds after which the request is forgotten
--
-- Returns 1, or 0 when there is no such worker any more.
--#include shared/clock
if not redis.call("ZSCORE", KEYS[1], ARGV[1]) then return 0 end
redis.call("DEL", KEYS[2], KEYS[3])
redis.call("SET", KEYS[2], integer(now_ms), "EX", ARGV[2])
return 1
