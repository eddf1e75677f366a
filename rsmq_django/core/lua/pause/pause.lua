-- Pause queues: from the next fetch on, no worker takes messages from them.
--
--   KEYS[1]  set  names of paused queues
--   ARGV     names
--
-- Returns how many were not paused before.
redis.call("SREM", KEYS[1], "") -- a removal first: then this works at the memory limit, too
return redis.call("SADD", KEYS[1], unpack(ARGV))
