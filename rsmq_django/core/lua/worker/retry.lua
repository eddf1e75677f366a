-- End a lease after a failed attempt: the message becomes visible again later.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> deliveries that were given back unused
--   KEYS[4]  hash  what this worker holds (shared/strike)
--   KEYS[5]  hash  result record; absent when none is kept
--   ARGV     strikes; id, receive count, ms until the next attempt; if a record is kept: seconds to keep it, number of
--            words, words
--
-- Returns 1 done, 0 no such message, -1 lease lost (nothing was written).
--#include shared/clock
--#include shared/fence
--#include shared/results
--#include shared/strike
local messages, settings, holds, result = KEYS[1], KEYS[2], KEYS[4], KEYS[5]
local at = strike(holds, 1)
local id, receive_count, wait_ms = ARGV[at], ARGV[at + 1], ARGV[at + 2]

local verdict = verdicts_on(messages, settings, {id}, {receive_count})[1]
if verdict ~= 1 then return verdict end
redis.call("ZREM", messages, id)
redis.call("ZADD", messages, integer(now_ms + wait_ms), id)
if result then write_result(result, ARGV[at + 3], at + 4) end
return 1
