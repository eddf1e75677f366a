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

local out, ids, _, values = {}, hand_out(messages, settings, phantoms, count, now_ms + visibility_ms)
for i, id in ipairs(ids) do
  out[4 * i - 3], out[4 * i - 2], out[4 * i - 1], out[4 * i] = id, values[3 * i - 2], values[3 * i - 1], values[3 * i]
end
return out
