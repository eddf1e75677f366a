-- Remove a name from the list of queues if the queue does not exist.
--
--   KEYS[1], KEYS[2]  zset and hash of the queue
--   KEYS[3]           set  queue names
--   ARGV              name
--
-- Returns 1 done, 0 the queue exists or is not listed.
if redis.call("EXISTS", KEYS[1]) == 1 or redis.call("EXISTS", KEYS[2]) == 1 then return 0 end
return redis.call("SREM", KEYS[3], ARGV[1])
