-- Set the redelivery time of messages in flight: at once, later, or after a longer time than before.
--
--   KEYS[1]  hash  the group's own
--   KEYS[2]  zset  what the group holds, scored with its index
--   KEYS[3]  zset  the same, scored with when it is handed out again (ms)
--   KEYS[4]  hash  deliveries
--   ARGV     ms from now; "", or how many of their deliveries do not count because they were released unused; per
--            message (1..1000): index, receipt (topic/parts/receipts)
--
-- Returns how many of them were in flight with these receipts, if all or none; else 1 or 0 for each.
--#include parts/clock
--#include topic/parts/receipts
--#include topic/parts/held
--#include topic/parts/again
local group = {own = KEYS[1], pending = KEYS[2], due = KEYS[3], counts = KEYS[4]}
local due_ms, released = integer(now_ms + ARGV[1]), tonumber(ARGV[2])
local fitting = held_by_receipt(group, 3)
if #fitting == 0 then return 0 end

local held = in_flight(group, fitting)
for _, index in ipairs(held) do
  -- Removing before adding: ZADD alone is refused when the server is at its memory limit.
  redis.call("ZREM", group.due, index)
  if released then
    local deliveries = deliveries_of(redis.call("HGET", group.counts, index))
    redis.call("HSET", group.counts, index, counted(deliveries, released))
  end
  redis.call("ZADD", group.due, due_ms, index)
end
return reply_which(3, held)
