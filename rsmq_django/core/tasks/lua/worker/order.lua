-- Store a command to a worker process, which its supervisor reads with its next heartbeat.
--
--   KEYS[1]  zset    worker id -> time of its last heartbeat (ms)
--   KEYS[2]  string  the last command to it
--   ARGV     worker id; the command; seconds after which it expires
--
-- Returns 1, or 0 when the worker does not exist any more.
--#include parts/clock
if not redis.call("ZSCORE", KEYS[1], ARGV[1]) then return 0 end
redis.call("DEL", KEYS[2]) -- removal first, so that this works at the memory limit, too
redis.call("SET", KEYS[2], ARGV[2] .. " " .. integer(now_ms), "EX", ARGV[3])
return 1
