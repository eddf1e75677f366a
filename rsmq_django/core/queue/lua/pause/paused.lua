-- List the paused queues of a namespace, unordered.
--
--   KEYS[1]  set  names of paused queues
return redis.call("SMEMBERS", KEYS[1])
