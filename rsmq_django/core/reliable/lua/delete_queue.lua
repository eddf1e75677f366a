-- Delete a queue with all its messages.
--
--   KEYS   see parts/queue: one queue
--
-- Returns 1. Errors: ReliableQueueNotFound.
--#include reliable/parts/queue
local names, queue = KEYS[1], queue_at(1)
local was_listed = redis.call("SREM", names, queue.name)
local removed = redis.call("UNLINK", unpack(KEYS, 2, 1 + KEYS_PER_QUEUE))
if removed + was_listed == 0 then return redis.error_reply("RSMQ ReliableQueueNotFound") end
return 1
