-- Acknowledge messages. The cursor then points before the lowest unacknowledged message.
--
--   KEYS[1]  string  the group's cursor
--   KEYS[2..5]       own, pending, due, counts (topic/parts/group)
--   ARGV     per message (1..1000): index, receipt (topic/parts/receipts)
--
-- Returns how many of them were in flight with these receipts, if all or none; else 1 or 0 for each. A replay or seek
-- meanwhile, also by a plain client, is not undone, and a redelivered message belongs to its new consumer.
--#include topic/parts/index
--#include topic/parts/group
--#include topic/parts/held
--#include topic/parts/receipts
local group = {cursor = KEYS[1], own = KEYS[2], pending = KEYS[3], due = KEYS[4], counts = KEYS[5]}
local lowest = tonumber(redis.call("ZRANGE", group.pending, 0, 0)[1])
local text, read = redis.call("GET", group.cursor), tonumber(redis.call("HGET", group.own, "read"))
local cursor = text and index_of(text)
if not lowest or not cursor or cursor < lowest - 1 or not read then return 0 end

local done = let_go(group, held_by_receipt(group, 1))
if #done > 0 then settle_cursor(group, math.max(read, cursor)) end
return reply_which(1, done)
