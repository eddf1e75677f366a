-- Remove task ids from a tag whose messages have ended. A message that is still in its queue has another worker or a next
-- attempt: its settlement was refused, and its task keeps the tag.
--
--   KEYS[1]  zset  task id -> time at which it expires (ms)
--   KEYS[2]  zset  message id -> time it becomes visible (ms)
--   ARGV     per message (1..1000): message id, task id
--
-- Returns how many were removed.
local tag, messages = KEYS[1], KEYS[2]
local ids, gone = {}, {}
for n = 1, #ARGV, 2 do ids[#ids + 1] = ARGV[n] end
for n, score in ipairs(redis.call("ZMSCORE", messages, unpack(ids))) do
  if not score then gone[#gone + 1] = ARGV[2 * n] end
end
return #gone > 0 and redis.call("ZREM", tag, unpack(gone)) or 0
