-- Remove what we noted about messages that do not exist any more.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  message id -> failure record or releases
--   ARGV     ids
--
-- Returns how many were removed.
local messages, side = KEYS[1], KEYS[2]
local removed = 0
for _, id in ipairs(ARGV) do
  if not redis.call("ZSCORE", messages, id) then removed = removed + redis.call("HDEL", side, id) end
end
return removed
