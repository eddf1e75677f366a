-- Settle a message after an attempt that did not finish its task: it becomes visible again later.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> number of releases
--   KEYS[4]  hash  messages leased by this worker (parts/strike)
--   KEYS[5], KEYS[6]  stream and string: the event log, and how many events could not be written
--   KEYS[7]  hash  result record; absent when none is kept
--   ARGV     strikes; id, receive count, ms until the next attempt, "retried" for a failed attempt or "released" for one
--            that does not count; if a record is kept: seconds to keep it, number of words, words; events (parts/events)
--
-- Returns 1 done, 0 no such message, -1 lease lost (nothing was written).
--#include parts/clock
--#include parts/counters
--#include parts/fence
--#include parts/results
--#include parts/strike
--#include parts/events
local messages, settings, releases, holds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local log, dropped, result = KEYS[5], KEYS[6], KEYS[7]
local at, removed_count = strike(holds, 1)
local id, receive_count, wait_ms, how = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]

local verdict = verdicts_on(messages, settings, {id}, {receive_count})[1]
-- Removed from the record before: an earlier call, whose reply was lost, has written the event and counted.
if verdict ~= 0 and removed_count > 0 then log_event(log, dropped, 1, verdict == 1 and how or "lost") end
if verdict ~= 1 then return verdict end
redis.call("ZREM", messages, id)
redis.call("ZADD", messages, integer(now_ms + wait_ms), id)
if removed_count > 0 and how == "released" then raise_counter(releases, id, 1) end
if result then write_result(result, ARGV[at + 4], at + 5) end
return 1
