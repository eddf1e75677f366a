-- Count the delayed messages of many queues, and those in flight. Read-only.
--
--   KEYS     per queue: zset of its messages, hash of its attributes
--   ARGV[1]  number of messages to check in each queue (2..100)
--
-- Returns per queue: hidden messages, how many of them were received before, 1 when that is an estimate. A queue that
-- another program broke (a key of the wrong type) has -1 hidden messages.
--#include shared/clock
--#include browse/received
local most, out, n = tonumber(ARGV[1]), {}, 0

local function look_at(messages, settings)
  local ready = redis.call("ZCOUNT", messages, "-inf", integer(now_ms))
  local hidden = redis.call("ZCARD", messages) - ready
  return hidden, received_among(messages, settings, ready, hidden, most)
end

for at = 1, #KEYS, 2 do
  -- A broken queue must not hide the others.
  local ok, hidden, received, is_estimate = pcall(look_at, KEYS[at], KEYS[at + 1])
  out[n + 1], out[n + 2], out[n + 3] = ok and hidden or -1, ok and received or 0, ok and is_estimate or 0
  n = n + 3
end
return out
