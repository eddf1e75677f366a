-- List the topics that were used through this package.
--
--   KEYS[1]  set  topics
return redis.call("SMEMBERS", KEYS[1])
