-- List the paused queues of a namespace, in no order.
--
--   KEYS[1]  set  names of paused queues
return redis.call("SMEMBERS", KEYS[1])
