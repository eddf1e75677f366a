-- Redeliver messages that were not acknowledged, oldest delivery first.
--
--   KEYS   see parts/queue: one queue
--   ARGV   how many (0..1000); the minimum ms since their last delivery; name of the consumer, or ""
--
-- Returns of each, in one flat list: id, body, number of deliveries including this one, and how many of them were
-- released unused. Null: no queue.
--#include parts/clock
--#include reliable/parts/queue
--#include reliable/parts/deliveries
--#include reliable/parts/deaths
local queue = queue_at(1)
local count, elapsed_ms = whole_number(1, "count", 0, 1000), whole_number(2, "elapsed_ms", 0, 1e13)
local consumer = ARGV[3] or ""
if sizes_of(queue).state == 0 then return false end
if count == 0 then return {} end

local oldest, due = redis.call("ZRANGE", queue.delivered, 0, count - 1, "WITHSCORES"), {}
for at = 1, #oldest, 2 do
  if now_ms - delivered_ms(oldest[at + 1]) < elapsed_ms then break end
  due[#due + 1] = oldest[at]
end
if #due == 0 then return {} end

-- The first write is a removal, so that a server at its memory limit accepts the others, too.
redis.call("ZREM", queue.delivered, unpack(due))
local ids, histories = bury_spent(queue, due, read_history(queue, due, 1))
if #ids == 0 then return {} end
note_deliveries(queue, ids, histories, consumer)
add_to_total(queue, "recovered", #ids)

local reply = {}
for n, body in ipairs(redis.call("HMGET", queue.bodies, unpack(ids))) do
  local at, history = 4 * (n - 1), histories[n]
  reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = ids[n], body or "", history.count, history.unused
end
return reply
