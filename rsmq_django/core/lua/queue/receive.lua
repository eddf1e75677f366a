-- Take the oldest ready messages and hide them for their visibility timeout.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  phantoms that were removed (shared/phantoms)
--   ARGV     count (1..1000); visibility timeout in ms, or the unit of the queue's own
--
-- Returns id, body, receive count, first receive (ms or "") of each, in one flat list.
-- Errors: QueueNotFound, BrokenQueue <field> <value>.
--#include shared/clock
--#include shared/units
--#include shared/counters
--#include shared/hold
--#include shared/phantoms
--#include shared/hand_out
local messages, settings, phantoms = KEYS[1], KEYS[2], KEYS[3]
local count, timeout = tonumber(ARGV[1]), ARGV[2]

local stored = redis.call("HGET", settings, "vt")
if not stored then return redis.error_reply("RSMQ QueueNotFound") end
local visibility_ms = given_or_own_ms(timeout, stored)
if not visibility_ms then
  -- Another client wrote it: a line break in an error would read like a second reply.
  return redis.error_reply("RSMQ BrokenQueue vt " .. stored:sub(1, 40):gsub("[%c\127-\255]", "?"))
end

local out, n = {}, 0
hand_out(messages, settings, phantoms, count, now_ms + visibility_ms, function(id, body, receive_count, first_received)
  out[n + 1], out[n + 2], out[n + 3], out[n + 4], n = id, body, receive_count, first_received, n + 4
end)
return out
