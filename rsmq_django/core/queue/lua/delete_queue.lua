-- Delete a queue with all its messages. A new queue of the same name is not paused.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  set   queue names
--   KEYS[4]  set   names of paused queues
--   KEYS[5..] hash our additional data of the queue: failure records, releases, removed phantoms
--   ARGV     name
--
-- Returns 1. Errors: QueueNotFound when neither key existed; the name is removed from the list even then.
local removed = redis.call("UNLINK", KEYS[1], KEYS[2])
redis.call("UNLINK", unpack(KEYS, 5))
redis.call("SREM", KEYS[3], ARGV[1])
redis.call("SREM", KEYS[4], ARGV[1])
if removed == 0 then return redis.error_reply("RSMQ QueueNotFound") end
return 1
