-- Read which tasks have a stream of their last successes.
--
--   KEYS[1]  zset  task -> when a worker last registered it (ms)
--   ARGV     maximum number
--
-- Returns their names, the latest registered first.
return redis.call("ZREVRANGE", KEYS[1], 0, ARGV[1] - 1)
