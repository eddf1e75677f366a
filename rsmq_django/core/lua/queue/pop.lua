-- Take the oldest ready message and remove it: at most once.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--
-- Returns id, body, receive count, first receive (ms or ""), or an empty list. Errors: QueueNotFound.
--#include shared/clock
--#include shared/hold
--#include shared/hand_out
local messages, settings = KEYS[1], KEYS[2]

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end

local out = {}
hand_out(messages, settings, 1, nil, function(id, body, receive_count, first_received)
  out = {id, body, receive_count, first_received}
end)
return out
