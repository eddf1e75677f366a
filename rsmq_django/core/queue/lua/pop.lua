-- Receive the oldest ready message and remove it: at most once.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  phantoms that were removed (parts/phantoms)
--   KEYS[4]  hash  message id -> failure record; KEYS[5] hash of releases (parts/past)
--
-- Returns id, body, receive count, first receive (ms or ""), or an empty list. Errors: QueueNotFound.
--#include parts/clock
--#include parts/counters
--#include parts/hold
--#include parts/phantoms
--#include parts/hand_out
--#include parts/past
local messages, settings, phantoms, failures, releases = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end

local found = hand_out(messages, settings, phantoms, 1)
if not found.ids[1] then return {} end
if found.receive_counts[1] ~= "1" then forget_past(releases, failures, found.ids[1]) end
return {found.ids[1], found.values[1], found.receive_counts[1], found.first_receives[1]}
