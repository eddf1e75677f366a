-- Read which tasks have a stream of their last successes.
--
--   KEYS[1]  zset  task -> when a worker last entered it (ms)
--   ARGV     at most how many
--
-- Returns their names, the one that was entered last first.
return redis.call("ZREVRANGE", KEYS[1], 0, ARGV[1] - 1)
