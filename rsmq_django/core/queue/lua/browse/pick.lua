-- Read messages by their ids. Read-only.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> failure record (JSON)
--   ARGV     number of bytes of each body; ids
--
-- Returns the server's time (ms), then the seven values of parts/read for each message that exists, in the order
-- given. Errors: QueueNotFound.
--#include parts/clock
--#include queue/browse/parts/read
local messages, settings, failures, longest = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1])

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end

local found = {}
for at = 2, #ARGV do
  local score = redis.call("ZSCORE", messages, ARGV[at])
  if score then
    found[#found + 1] = ARGV[at]
    found[#found + 1] = score
  end
end
return read_into({integer(now_ms)}, settings, failures, found, longest, math.huge)
