-- Note that the entries which a program declares are what its code says. The note is lost when the entries are.
--
--   KEYS[1]  hash  "<field>:<name>" -> value of a field of a schedule
--   ARGV     owner
redis.call("HSET", KEYS[1], "synced:" .. ARGV[1], "1")
return 1
