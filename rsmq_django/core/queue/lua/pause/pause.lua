-- Pause queues: from the next fetch on, no worker receives messages from them.
--
--   KEYS[1]  set  names of paused queues
--   ARGV     names
--
-- Returns how many were not paused before.
redis.call("SREM", KEYS[1], "") -- removal first, so that this works at the memory limit, too
return redis.call("SADD", KEYS[1], unpack(ARGV))
