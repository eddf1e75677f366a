-- Read a message that was leased by a worker when it ended, unless it was received since.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> number of releases; id:crashes -> workers that died
--   ARGV     id, receive count
--
-- Returns body ("" when it is too long), first receive (ms or ""), number of releases and number of crashes; an empty list
-- when another worker has received it or it is gone.
--#include parts/fence
--#include parts/too_long
--#include parts/whole
local messages, settings, deliveries = KEYS[1], KEYS[2], KEYS[3]
local id, receive_count = ARGV[1], ARGV[2]

if verdicts_on(messages, settings, {id}, {receive_count})[1] ~= 1 then return {} end
local values = redis.call("HMGET", settings, id, id .. ":fr")
local counts = redis.call("HMGET", deliveries, id, id .. ":crashes")
local body = unless_too_long(values[1] or "", longest_body(settings))
return {body, values[2] or "", whole(counts[1]), whole(counts[2])}
