-- Note that the stored schedules of a program match its code. The note is lost together with the schedules.
--
--   KEYS[1]  hash  "<field>:<name>" -> value of a field of a schedule
--   ARGV     owner
redis.call("HSET", KEYS[1], "synced:" .. ARGV[1], "1")
return 1
