-- Remove our additional data of a queue that does not exist any more.
--
--   KEYS[1], KEYS[2]  zset and hash of the queue
--   KEYS[3..]         hash our own additional data of the queue
--
-- Returns how many keys were removed.
if redis.call("EXISTS", KEYS[1], KEYS[2]) > 0 then return 0 end
return redis.call("UNLINK", unpack(KEYS, 3))
