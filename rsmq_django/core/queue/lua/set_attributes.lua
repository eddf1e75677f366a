-- Change attributes of a queue; "" keeps the current value.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   ARGV     visibility timeout (s), delay (s), maximum size (bytes or -1)
--
-- Returns the nine values of parts/attributes afterwards. Errors: QueueNotFound.
--#include parts/clock
--#include parts/attributes
local settings = KEYS[2]
if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end

local changes = {"modified", time[1]}
for i, field in ipairs({"vt", "delay", "maxsize"}) do
  if ARGV[i] ~= "" then
    changes[#changes + 1] = field
    changes[#changes + 1] = ARGV[i]
  end
end
redis.call("HSET", settings, unpack(changes))
return read_attributes(KEYS[1], settings)
