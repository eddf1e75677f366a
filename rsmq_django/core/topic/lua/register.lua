-- Add a topic to the list of topics. Redis itself cannot list them.
--
--   KEYS[1]  set  topics
--   ARGV     names
return redis.call("SADD", KEYS[1], unpack(ARGV))
