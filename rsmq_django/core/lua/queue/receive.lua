-- Take the oldest ready messages and hide them for their visibility timeout.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   ARGV     count (1..1000); visibility timeout in ms or "" for the queue's own
--
-- Returns id, body, receive count, first receive (ms or "") of each, in one flat list.
-- Errors: QueueNotFound, BrokenQueue <field> <value>.
--#include shared/clock
--#include shared/hold
--#include shared/hand_out
local messages, settings = KEYS[1], KEYS[2]
local count, visibility_ms = tonumber(ARGV[1]), ARGV[2]

local stored = redis.call("HGET", settings, "vt")
if not stored then return redis.error_reply("RSMQ QueueNotFound") end
if visibility_ms == "" then
  if not tonumber(stored) then return redis.error_reply("RSMQ BrokenQueue vt " .. stored) end
  visibility_ms = tonumber(stored) * 1000
end

local out, n = {}, 0
hand_out(messages, settings, count, now_ms + visibility_ms, function(id, body, receive_count, first_received)
  out[n + 1], out[n + 2], out[n + 3], out[n + 4], n = id, body, receive_count, first_received, n + 4
end)
return out
