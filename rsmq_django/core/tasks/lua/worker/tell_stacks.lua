-- Store the reply to a request for the stacks of a worker process's running tasks.
--
--   KEYS[1]  string  the reply; expires
--   ARGV     the reply; seconds to keep it
--
-- Returns 1.
redis.call("SET", KEYS[1], ARGV[1], "EX", ARGV[2])
return 1
