-- Remove the locks of messages that have ended, unless another message has taken them.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2..] hash lock of each message
--   ARGV     message ids
--
-- Returns how many were removed. The lock of a message that still exists stays, because its settlement was refused, and
-- so does a lock with a time window.
local removed = 0
for n, id in ipairs(ARGV) do
  local held = redis.call("HMGET", KEYS[n + 1], "message", "until_ms")
  local is_over = held[1] == id and held[2] == "0" and not redis.call("ZSCORE", KEYS[1], id)
  if is_over then removed = removed + redis.call("DEL", KEYS[n + 1]) end
end
return removed
