-- Remove our additional data of messages that do not exist any more.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  message id -> failure record, releases, crashes
--   ARGV     fields
--
-- Returns how many were removed.
--#include doctor/parts/ids
--#include doctor/parts/side
local messages, side = KEYS[1], KEYS[2]
local removed = 0
for _, field in ipairs(ARGV) do
  if is_stale(messages, field) then removed = removed + redis.call("HDEL", side, field) end
end
return removed
