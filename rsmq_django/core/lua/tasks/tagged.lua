-- Read which tasks carry a tag, those first that were sent first.
--
--   KEYS[1]  zset  task id -> time at which it is forgotten (ms)
--   ARGV     how many at most
return redis.call("ZRANGE", KEYS[1], 0, tonumber(ARGV[1]) - 1)
