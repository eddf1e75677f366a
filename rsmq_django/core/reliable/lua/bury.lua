-- Make delivered messages dead, without further deliveries.
--
--   KEYS   see parts/queue: one queue
--   ARGV   reason; then up to 1,000 receipts (parts/receipts)
--
-- Returns the ids that are dead now, in order. Null: no queue.
--#include parts/clock
--#include reliable/parts/queue
--#include reliable/parts/deliveries
--#include reliable/parts/receipts
local queue = queue_at(1)
if sizes_of(queue).state == 0 then return false end
local ids, histories = held_by_receipts(queue, 2)
if #ids == 0 then return ids end

local scores, entries = {}, {}
for n, id in ipairs(ids) do
  histories[n].consumer = ARGV[1]
  scores[2 * n - 1], scores[2 * n] = integer(now_ms), id
  entries[2 * n - 1], entries[2 * n] = id, history_entry(histories[n])
end
redis.call("ZREM", queue.delivered, unpack(ids))
redis.call("ZADD", queue.dead, unpack(scores))
redis.call("HSET", queue.history, unpack(entries))
add_to_total(queue, "buried", #ids)
return ids
