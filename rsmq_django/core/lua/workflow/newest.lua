-- Read which workflows were made last, the newest first.
--
--   KEYS[1]  zset  workflow id -> time of its creation (ms)
--   ARGV     how many at most
return redis.call("ZREVRANGE", KEYS[1], 0, tonumber(ARGV[1]) - 1)
