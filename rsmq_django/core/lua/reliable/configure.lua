-- Set how often a message may be delivered; makes the queue where there is none.
--
--   KEYS   see parts/queue: one queue
--   ARGV   max_deliveries; 0: as often as you like
--#include reliable/parts/queue
local names, queue = KEYS[1], queue_at(1)
local max_deliveries = whole_number(1, "max_deliveries", 0, 1e6)
sizes_of(queue)
redis.call("SADD", names, queue.name)
redis.call("HSET", queue.state, "max_deliveries", max_deliveries)
return 1
