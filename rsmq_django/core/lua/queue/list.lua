-- List the queues of a namespace, in no order.
--
--   KEYS[1]  set  queue names
return redis.call("SMEMBERS", KEYS[1])
