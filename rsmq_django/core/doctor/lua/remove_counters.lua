-- Remove receive counts and times of first receive that belong to no message and no body.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   ARGV     ids
--
-- Returns the number of ids for which something was removed.
local messages, settings = KEYS[1], KEYS[2]
local has_messages = redis.call("TYPE", messages).ok == "zset"
local removed = 0
for _, id in ipairs(ARGV) do
  local is_message = has_messages and redis.call("ZSCORE", messages, id)
  if not is_message and redis.call("HEXISTS", settings, id) == 0 then
    removed = removed + math.min(1, redis.call("HDEL", settings, id .. ":rc", id .. ":fr"))
  end
end
return removed
