-- Answer where the running tasks of a worker process are in their code.
--
--   KEYS[1]  string  the answer; expires
--   ARGV     the answer; seconds to keep it
--
-- Returns 1.
redis.call("SET", KEYS[1], ARGV[1], "EX", ARGV[2])
return 1
