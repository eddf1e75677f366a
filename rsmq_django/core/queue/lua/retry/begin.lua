-- Store a plan to redrive dead letters of one queue at a rate.
--
--   KEYS[1]  hash  the plan: state, filter, counts
--   KEYS[2]  zset  plans of the dead-letter queue -> time of creation (ms)
--   ARGV     id of the plan; seconds to keep it; maximum number of listed plans; fields and values
--
-- Returns the server's time (ms).
--#include parts/clock
local plan, plans = KEYS[1], KEYS[2]
redis.call("HSET", plan, "state", "sending", "created_ms", integer(now_ms), unpack(ARGV, 4))
redis.call("EXPIRE", plan, ARGV[2])
redis.call("ZADD", plans, integer(now_ms), ARGV[1])
redis.call("ZREMRANGEBYRANK", plans, 0, -ARGV[3] - 1)
if redis.call("PTTL", plans) < 1000 * ARGV[2] then redis.call("EXPIRE", plans, ARGV[2]) end
return now_ms
