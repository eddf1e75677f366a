-- Read the counters of one queue in one span of time.
--
--   KEYS[1]  hash  counters
--
-- Returns fields and values in turn; empty when the hash does not exist.
return redis.call("HGETALL", KEYS[1])
