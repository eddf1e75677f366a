-- Read the n-th to m-th message of a queue, or of its ready or hidden messages. Read-only.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> failure record (JSON)
--   ARGV     state ("all", "ready" or "hidden"); number to skip; number to read (0..1000); "1" to begin with the message
--            that becomes visible last; number of bytes of each body
--
-- Returns the server's time (ms), the number of messages in that state, then per message the seven values of parts/read, its
-- failure record without the traceback. Errors: QueueNotFound.
--#include parts/clock
--#include queue/browse/parts/read
--#include queue/browse/parts/record
-- Large bodies must not block the server: beyond this size, they are left out.
local budget_bytes = 1048576
local messages, settings, failures = KEYS[1], KEYS[2], KEYS[3]
local which, offset, count, is_reversed, longest = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end
local first, all = 0, redis.call("ZCARD", messages)
local behind_last = all
if which ~= "all" then
  local ready = redis.call("ZCOUNT", messages, "-inf", integer(now_ms))
  if which == "ready" then behind_last = ready else first = ready end
end

local out = {integer(now_ms), behind_last - first}
count = math.min(count, behind_last - first - offset)
if count <= 0 then return out end
local found
if is_reversed == "1" then
  first = all - behind_last + offset
  found = redis.call("ZREVRANGE", messages, first, first + count - 1, "WITHSCORES")
else
  first = first + offset
  found = redis.call("ZRANGE", messages, first, first + count - 1, "WITHSCORES")
end
for at = 1, #found, 2 do
  local n = #out
  read_into(out, settings, nil, {found[at], found[at + 1]}, budget_bytes > 0 and longest or 0, math.huge)
  out[n + 7] = head_of(failures, found[at])
  budget_bytes = budget_bytes - #out[n + 6] - #out[n + 7]
end
return out
