-- Pause queues: from the next fetch on, no worker takes messages from them.
--
--   KEYS[1]  set  names of paused queues
--   ARGV     names
--
-- Returns how many were not paused before.
return redis.call("SADD", KEYS[1], unpack(ARGV))
