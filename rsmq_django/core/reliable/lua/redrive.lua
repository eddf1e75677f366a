-- Move dead messages to the end of the queue, without their earlier deliveries.
--
--   KEYS   see parts/queue: one queue
--   ARGV   how many (0..1000) of the oldest dead messages; or 0, and then up to 1,000 receipts
--          (parts/receipts)
--
-- Returns the ids that were dead and are undelivered now. Null: no queue.
--#include parts/clock
--#include reliable/parts/queue
--#include reliable/parts/deliveries
--#include reliable/parts/receipts
local queue = queue_at(1)
local count = whole_number(1, "count", 0, 1000)
if sizes_of(queue).state == 0 then return false end

local ids = count > 0 and redis.call("ZRANGE", queue.dead, 0, count - 1) or (held_by_receipts(queue, 2, queue.dead))
if #ids == 0 then return ids end
redis.call("ZREM", queue.dead, unpack(ids))
-- Their number continues to grow, so that earlier receipts are invalid.
local entries = {}
for n, history in ipairs(read_history(queue, ids, 0)) do
  history.unused, history.consumer = history.count, ""
  entries[2 * n - 1], entries[2 * n] = ids[n], history_entry(history)
end
redis.call("HSET", queue.history, unpack(entries))
redis.call("RPUSH", queue.undelivered, unpack(ids))
announce(queue)
return ids
