-- Read the body of a message that still exists, without receiving it.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   ARGV     id
--
-- Returns the body, or nil.
if not redis.call("ZSCORE", KEYS[1], ARGV[1]) then return false end
return redis.call("HGET", KEYS[2], ARGV[1])
