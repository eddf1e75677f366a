-- Strike tasks off a tag.
--
--   KEYS[1]  zset  task id -> time at which it is forgotten (ms)
--   ARGV     task ids
--
-- Returns how many there were.
return redis.call("ZREM", KEYS[1], unpack(ARGV))
