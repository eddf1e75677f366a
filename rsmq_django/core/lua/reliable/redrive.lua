-- Give dead messages another chance: they join the end of the queue, and none of their deliveries counts any more.
--
--   KEYS   see parts/queue: one queue
--   ARGV   how many (0..1000), those that died first first; or 0, and then up to 1,000 ids
--
-- Returns the ids that were dead and are undelivered now. Null: no such queue.
--#include shared/clock
--#include reliable/parts/queue
--#include reliable/parts/deliveries
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
-- Their number goes on growing, so that a receipt of before is good for nothing.
local entries = {}
for n, history in ipairs(read_history(queue, ids, 0)) do
  history.unused, history.consumer = history.count, ""
  entries[2 * n - 1], entries[2 * n] = ids[n], history_entry(history)
end
redis.call("HSET", queue.history, unpack(entries))
redis.call("RPUSH", queue.undelivered, unpack(ids))
announce(queue)
return ids
