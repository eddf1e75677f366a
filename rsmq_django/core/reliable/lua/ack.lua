-- Acknowledge delivered messages, which deletes them.
--
--   KEYS   see parts/queue: one queue
--   ARGV   up to 1,000 receipts (parts/receipts)
--
-- Returns the deleted ids, in order, without ids that are not delivered or do not exist. Null: no queue.
--#include reliable/parts/queue
--#include reliable/parts/deliveries
--#include reliable/parts/receipts
local queue = queue_at(1)
if sizes_of(queue).state == 0 then return false end

local ids = held_by_receipts(queue, 1)
if #ids > 0 then
  redis.call("ZREM", queue.delivered, unpack(ids))
  redis.call("HDEL", queue.bodies, unpack(ids))
  redis.call("HDEL", queue.history, unpack(ids))
  add_to_total(queue, "acked", #ids)
end
return ids
