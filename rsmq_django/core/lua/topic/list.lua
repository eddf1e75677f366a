-- List the topics that somebody has used with this package.
--
--   KEYS[1]  set  topics
return redis.call("SMEMBERS", KEYS[1])
