-- Release delivered messages: to the front of the queue, or to its end after a delay. A message with the maximum number
-- of deliveries goes to `dead`.
--
--   KEYS   see parts/queue: one queue
--   ARGV   delay in ms; "failed", or "unused" when the delivery is not to be counted; then up to 1,000 receipts
--          (parts/receipts)
--
-- Returns the released ids, in order. Null: no queue.
--#include parts/clock
--#include reliable/parts/queue
--#include reliable/parts/deliveries
--#include reliable/parts/deaths
--#include reliable/parts/receipts
local queue = queue_at(1)
local delay_ms, is_unused = whole_number(1, "delay_ms", 0, 1e13), ARGV[2] == "unused"
if sizes_of(queue).state == 0 then return false end
local ids, histories = held_by_receipts(queue, 3)
if #ids == 0 then return ids end

redis.call("ZREM", queue.delivered, unpack(ids))
if is_unused then
  for _, history in ipairs(histories) do history.unused = history.unused + 1 end
end
local remaining, remaining_histories = bury_spent(queue, ids, histories)

local front, scores, entries = {}, {}, {}
for n, id in ipairs(remaining) do
  front[#remaining + 1 - n] = id  -- LPUSH reverses them
  scores[2 * n - 1], scores[2 * n] = integer(now_ms + delay_ms), id
  remaining_histories[n].consumer = ""
  entries[2 * n - 1], entries[2 * n] = id, history_entry(remaining_histories[n])
end
if #remaining > 0 then
  redis.call("HSET", queue.history, unpack(entries))
  if delay_ms > 0 then
    redis.call("ZADD", queue.delayed, unpack(scores))
  else
    redis.call("LPUSH", queue.undelivered, unpack(front))
  end
  -- Also for a delayed message, so that waiting clients learn when it is due.
  if redis.call("LLEN", queue.wake) == 0 then redis.call("RPUSH", queue.wake, 1) end
end
add_to_total(queue, "nacked", #ids)
return ids
