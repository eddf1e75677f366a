-- List the queues of a namespace, unordered.
--
--   KEYS[1]  set  queue names
return redis.call("SMEMBERS", KEYS[1])
