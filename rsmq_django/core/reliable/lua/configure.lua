-- Set the maximum number of deliveries; creates the queue if it does not exist.
--
--   KEYS   see parts/queue: one queue
--   ARGV   max_deliveries; 0: no limit
--#include reliable/parts/queue
local names, queue = KEYS[1], queue_at(1)
local max_deliveries = whole_number(1, "max_deliveries", 0, 1e6)
sizes_of(queue)
-- The first write is a removal, so that a worker that starts on a server at its memory limit stores it, too.
redis.call("HDEL", queue.state, "max_deliveries")
redis.call("SADD", names, queue.name)
redis.call("HSET", queue.state, "max_deliveries", max_deliveries)
return 1
