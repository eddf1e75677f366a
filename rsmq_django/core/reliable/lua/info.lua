-- Count the messages of a queue.
--
--   KEYS   see parts/queue: one queue
--
-- Returns "undelivered", their number, "delivered", their number. Errors: ReliableQueueNotFound.
--#include reliable/parts/queue
local sizes = sizes_of(queue_at(1))
if sizes.state == 0 then return redis.error_reply("RSMQ ReliableQueueNotFound") end
return {"undelivered", sizes.undelivered, "delivered", sizes.delivered}
