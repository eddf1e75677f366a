-- Remove task ids from a tag.
--
--   KEYS[1]  zset  task id -> time at which it expires (ms)
--   ARGV     task ids
--
-- Returns how many there were.
return redis.call("ZREM", KEYS[1], unpack(ARGV))
