-- Look at a slice of what we noted beside a queue, for messages that do not exist any more.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  message id -> failure record or releases
--   ARGV     cursor, length of the slice
--
-- Returns the next cursor, how many were looked at, and the ids that are gone.
--#include doctor/slices
local messages, side = KEYS[1], KEYS[2]
local cursor, ids = next_fields(side, ARGV[1], ARGV[2])
local reply = {cursor, #ids}
for _, id in ipairs(ids) do
  if not redis.call("ZSCORE", messages, id) then reply[#reply + 1] = id end
end
return reply
