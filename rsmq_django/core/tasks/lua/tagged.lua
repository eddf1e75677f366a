-- Read the tasks with a tag, the first sent first.
--
--   KEYS[1]  zset  task id -> time at which it expires (ms)
--   ARGV     maximum number
return redis.call("ZRANGE", KEYS[1], 0, tonumber(ARGV[1]) - 1)
