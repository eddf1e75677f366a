-- Delete dead messages.
--
--   KEYS   see parts/queue: one queue
--   ARGV   up to 1,000 ids
--
-- Returns the deleted ids. Null: no queue.
--#include reliable/parts/queue
local queue = queue_at(1)
if sizes_of(queue).state == 0 then return false end

local ids = {}
for at = 1, #ARGV do
  if redis.call("ZREM", queue.dead, ARGV[at]) == 1 then ids[#ids + 1] = ARGV[at] end
end
if #ids > 0 then
  redis.call("HDEL", queue.bodies, unpack(ids))
  redis.call("HDEL", queue.history, unpack(ids))
end
return ids
