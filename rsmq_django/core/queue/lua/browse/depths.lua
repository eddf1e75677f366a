-- Read the depths of many queues, without the empty ones. Read-only.
--
--   KEYS     per queue: zset of its messages, hash of its attributes
--   ARGV[1]  number of hidden messages to check in each queue (2..100); 0: it is not read how many are in flight
--
-- Returns the server's time (ms), then for each queue that has messages: its position (1 for the first two keys), all
-- messages, ready messages, time at which the first one becomes visible (ms), how many hidden messages were received before
-- (-1: not read), 1 when that is an estimate. Queues that another program broke (a key of the wrong type) are left out.
--#include parts/clock
--#include queue/browse/parts/received
local most, out, n, now = tonumber(ARGV[1]), {integer(now_ms)}, 1, integer(now_ms)

local function look_at(messages, settings)
  local first = redis.call("ZRANGE", messages, 0, 0, "WITHSCORES")[2]
  if not first then return end
  local all = redis.call("ZCARD", messages)
  local ready = tonumber(first) <= now_ms and redis.call("ZCOUNT", messages, "-inf", now) or 0
  if most == 0 then return all, ready, first, -1, 0 end
  return all, ready, first, received_among(messages, settings, ready, all - ready, most)
end

for at = 1, #KEYS, 2 do
  -- A broken queue must not hide the others.
  local ok, all, ready, first, received, is_estimate = pcall(look_at, KEYS[at], KEYS[at + 1])
  if ok and all then
    out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5], out[n + 6] =
      (at + 1) / 2, all, ready, first, received, is_estimate
    n = n + 6
  end
end
return out
