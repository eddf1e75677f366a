-- Take the oldest ready message and remove it: at most once.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  phantoms that were removed (shared/phantoms)
--
-- Returns id, body, receive count, first receive (ms or ""), or an empty list. Errors: QueueNotFound.
--#include shared/clock
--#include shared/counters
--#include shared/hold
--#include shared/phantoms
--#include shared/hand_out
local messages, settings, phantoms = KEYS[1], KEYS[2], KEYS[3]

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end

local found = hand_out(messages, settings, phantoms, 1)
if not found.ids[1] then return {} end
return {found.ids[1], found.values[1], found.receive_counts[1], found.first_receives[1]}
