-- Unregister a consumer: it no longer counts as live.
--
--   KEYS[1]  zset  consumers, scored with when they were last seen (ms)
--   ARGV     consumer
return redis.call("ZREM", KEYS[1], ARGV[1])
