-- Delete dead messages.
--
--   KEYS   see parts/queue: one queue
--   ARGV   up to 1,000 receipts (parts/receipts)
--
-- Returns the deleted ids. Null: no queue.
--#include reliable/parts/queue
--#include reliable/parts/deliveries
--#include reliable/parts/receipts
local queue = queue_at(1)
if sizes_of(queue).state == 0 then return false end

local ids = held_by_receipts(queue, 1, queue.dead)
if #ids > 0 then
  redis.call("ZREM", queue.dead, unpack(ids))
  redis.call("HDEL", queue.bodies, unpack(ids))
  redis.call("HDEL", queue.history, unpack(ids))
end
return ids
