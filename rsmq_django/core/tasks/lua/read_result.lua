-- Read a result record.
--
--   KEYS[1]  hash  status, queue, message, times, value, and per attempt a worker and an error
--
-- Returns fields and values in one flat list; empty when the record does not exist.
return redis.call("HGETALL", KEYS[1])
