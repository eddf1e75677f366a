-- Return the statistics of a queue.
--
--   KEYS   see parts/queue: one queue
--
-- Returns numbers: undelivered, delayed, delivered and dead messages; ms since the oldest delivery (-1: nothing is
-- delivered); totals of pushed, popped, acked, recovered, nacked, buried; max_deliveries. Then per delivered message,
-- for the thousand oldest deliveries: number of deliveries, consumer. Errors: ReliableQueueNotFound.
--#include parts/clock
--#include reliable/parts/queue
--#include reliable/parts/deliveries
local queue = queue_at(1)
local sizes = sizes_of(queue)
if sizes.state == 0 then return redis.error_reply("RSMQ ReliableQueueNotFound") end

local oldest = redis.call("ZRANGE", queue.delivered, 0, 0, "WITHSCORES")[2]
local reply = {sizes.undelivered, sizes.delayed, sizes.delivered, sizes.dead}
reply[5] = oldest and math.max(0, now_ms - delivered_ms(oldest)) or -1
local fields = {"pushed", "popped", "acked", "recovered", "nacked", "buried", "max_deliveries"}
for n, value in ipairs(redis.call("HMGET", queue.state, unpack(fields))) do
  reply[5 + n] = tonumber(value or 0) or 0
end
for _, history in ipairs(read_history(queue, redis.call("ZRANGE", queue.delivered, 0, 999), 1)) do
  reply[#reply + 1] = history.count
  reply[#reply + 1] = history.consumer
end
return reply
