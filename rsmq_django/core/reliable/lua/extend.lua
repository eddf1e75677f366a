-- Set a later delivery time for delivered messages, which postpones their recovery.
--
--   KEYS   see parts/queue: one queue
--   ARGV   ms from now; then up to 1,000 receipts (parts/receipts)
--
-- Returns the changed ids, in order. Null: no queue.
--#include parts/clock
--#include reliable/parts/queue
--#include reliable/parts/deliveries
--#include reliable/parts/receipts
local queue = queue_at(1)
local from_now_ms = whole_number(1, "from_now_ms", 0, 1e13)
if sizes_of(queue).state == 0 then return false end
local ids = held_by_receipts(queue, 2)
if #ids == 0 then return ids end

local scores = {}
for n, id in ipairs(ids) do
  scores[2 * n - 1], scores[2 * n] = integer(score_at(now_ms + from_now_ms) + n), id
end
-- The first write is a removal, so that a server at its memory limit accepts the others, too.
redis.call("ZREM", queue.delivered, unpack(ids))
redis.call("ZADD", queue.delivered, unpack(scores))
return ids
