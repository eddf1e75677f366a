-- Read the depths of many queues, without the empty ones. Read-only.
--
--   KEYS  per queue: zset of its messages
--
-- Returns the server's time (ms), then for each queue that has messages: its position in KEYS, all messages, ready messages,
-- time at which the first one becomes visible (ms). A queue that another program broke (a key of the wrong type) has -1
-- messages.
--#include shared/clock
local out, n, now = {integer(now_ms)}, 1, integer(now_ms)

for at, messages in ipairs(KEYS) do
  local first = redis.pcall("ZRANGE", messages, 0, 0, "WITHSCORES")
  if first.err then
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = at, -1, 0, now
    n = n + 4
  elseif first[1] then
    local is_ready = tonumber(first[2]) <= now_ms
    out[n + 1], out[n + 2] = at, redis.call("ZCARD", messages)
    out[n + 3] = is_ready and redis.call("ZCOUNT", messages, "-inf", now) or 0
    out[n + 4] = first[2]
    n = n + 4
  end
end
return out
