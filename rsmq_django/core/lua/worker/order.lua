-- Give a worker process an order, which its supervisor hears at its next heartbeat.
--
--   KEYS[1]  zset    worker id -> time of its last heartbeat (ms)
--   KEYS[2]  string  the last order to it
--   ARGV     worker id; the order; seconds after which it is forgotten
--
-- Returns 1, or 0 when there is no such worker any more.
--#include shared/clock
if not redis.call("ZSCORE", KEYS[1], ARGV[1]) then return 0 end
redis.call("DEL", KEYS[2]) -- removal first, so that this works at the memory limit, too
redis.call("SET", KEYS[2], ARGV[2] .. " " .. integer(now_ms), "EX", ARGV[3])
return 1
