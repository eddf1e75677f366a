-- Give dead messages another chance: they join the end of the queue as if they had never been delivered.
--
--   KEYS   see parts/queue: one queue
--   ARGV   how many (0..1000), those that died first first; or 0, and then up to 1,000 ids
--
-- Returns the ids that were dead and are undelivered now. Null: no such queue.
--#include reliable/parts/queue
local queue = queue_at(1)
local count = whole_number(1, "count", 0, 1000)
if sizes_of(queue).state == 0 then return false end

local ids, seen = {}, {}
if count > 0 then
  ids = redis.call("ZRANGE", queue.dead, 0, count - 1)
else
  for at = 2, #ARGV do
    if not seen[ARGV[at]] and redis.call("ZSCORE", queue.dead, ARGV[at]) then
      seen[ARGV[at]] = true
      ids[#ids + 1] = ARGV[at]
    end
  end
end
if #ids == 0 then return ids end
redis.call("ZREM", queue.dead, unpack(ids))
redis.call("HDEL", queue.history, unpack(ids))
redis.call("RPUSH", queue.undelivered, unpack(ids))
announce(queue)
return ids
