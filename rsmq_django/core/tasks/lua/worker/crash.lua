-- Return a message whose worker died while it ran: visible again later, with a count of crashes.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> number of releases; id:crashes -> workers that died
--   KEYS[4]  hash  messages leased by the dead worker (parts/strike)
--   KEYS[5], KEYS[6]  stream and string: the event log, and how many events could not be written
--   ARGV     strikes; id, receive count, ms until it becomes visible for each crash so far, maximum number of crashes,
--            after which it becomes a dead letter (with an event of its own); events (parts/events)
--
-- Returns an empty list when another worker has the lease or the message is gone; else: crashes so far, body ("" when it is
-- too long), first receive (ms or ""), and number of releases.
--#include parts/clock
--#include parts/counters
--#include parts/fence
--#include parts/too_long
--#include parts/whole
--#include parts/strike
--#include parts/events
local messages, settings, deliveries, holds, log, dropped = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local at = strike(holds, 1)
local id, receive_count, wait_ms = ARGV[at], ARGV[at + 1], ARGV[at + 2]

if verdicts_on(messages, settings, {id}, {receive_count})[1] ~= 1 then return {} end
-- Counted before the message is changed: this fails when its key has the wrong type.
local crashes = tonumber(raise_counter(deliveries, id .. ":crashes", 1))
redis.call("ZREM", messages, id)
redis.call("ZADD", messages, integer(now_ms + wait_ms * crashes), id)
if crashes < tonumber(ARGV[at + 3]) then log_event(log, dropped, 1, "lost") end
local values = redis.call("HMGET", settings, id, id .. ":fr")
local body = unless_too_long(values[1] or "", longest_body(settings))
return {crashes, body, values[2] or "", whole(redis.call("HGET", deliveries, id))}
