-- Store the heartbeats of workers, and find stale workers.
--
--   KEYS[1]  zset  worker id -> time of its last heartbeat (ms)
--   ARGV     ms without a heartbeat after which a worker is dead; then the ids of the live workers
--
-- Returns the server's time (ms) and up to 100 ids of dead workers. They stay in the set until their messages are
-- recovered. Each heartbeat begins with a removal, so that it works at the memory limit: there, too, stale means dead.
--#include parts/clock
local workers, timeout_ms = KEYS[1], ARGV[1]
for n = 2, #ARGV do
  redis.call("ZREM", workers, ARGV[n])
  redis.call("ZADD", workers, integer(now_ms), ARGV[n])
end
local reply = redis.call("ZRANGEBYSCORE", workers, "-inf", integer(now_ms - timeout_ms), "LIMIT", 0, 100)
table.insert(reply, 1, integer(now_ms))
return reply
