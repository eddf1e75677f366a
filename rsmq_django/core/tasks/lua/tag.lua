-- Add task ids to a tag, before the tasks are sent; expired task ids that were not removed are removed now.
--
--   KEYS[1..] zset  of each tag: task id -> time at which it expires (ms)
--   ARGV     ms from now until then; task ids
--
-- Returns the number of tags.
--#include parts/clock
local forget_ms = integer(now_ms + tonumber(ARGV[1]))
local entries = {}
for n = 2, #ARGV do
  entries[2 * n - 3], entries[2 * n - 2] = forget_ms, ARGV[n]
end
for _, key in ipairs(KEYS) do
  redis.call("ZREMRANGEBYSCORE", key, "-inf", integer(now_ms))
  redis.call("ZADD", key, unpack(entries))
  if redis.call("PTTL", key) < tonumber(ARGV[1]) then redis.call("PEXPIRE", key, ARGV[1]) end
end
return #KEYS
