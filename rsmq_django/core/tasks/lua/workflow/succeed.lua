-- Settle a message whose function returned, and continue its workflow, in one step.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> number of releases
--   KEYS[4]  hash  messages leased by this worker (parts/strike)
--   KEYS[5], KEYS[6]  stream and string: the event log, and how many events could not be written
--   KEYS[7]  hash  message id -> failure record of a dead letter in this queue
--   KEYS[8]  hash  result record; absent when none is kept
--   then the keys of the workflow (parts/state) and of its targets (parts/sending)
--   ARGV     number of keys before the workflow's; value (JSON); member (parts/progress); strikes; receive count, id; or, if
--            a result is kept: name of the queue, worker, and the words of parts/keep_result; events
--
-- Returns nothing when it is done; else position (0) and code, as tasks/worker/succeed does: 0 no such message, -1 lease
-- lost; the member was not counted then.
--#include parts/clock
--#include parts/counters
--#include parts/ids
--#include parts/units
--#include parts/fence
--#include parts/remove
--#include parts/strike
--#include parts/events
--#include parts/past
--#include parts/keep_result
--#include tasks/workflow/parts/state
--#include tasks/workflow/parts/sending
--#include tasks/workflow/parts/progress
--#include tasks/workflow/parts/ends
local messages, settings, releases, holds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local log, dropped, own_keys, value = KEYS[5], KEYS[6], tonumber(ARGV[1]), ARGV[2]
local dead_records, result = KEYS[7], own_keys == 8 and KEYS[8]

local first = read_member(own_keys + 1, 3)
local awaited = is_awaited()
local at = strike(holds, first)
local receive_count, id = ARGV[at], ARGV[at + 1]
if result then id, receive_count = ARGV[at + 2], ARGV[at + 3] end

local verdict = verdicts_on(messages, settings, {id}, {receive_count})[1]
if verdict == -1 then log_event(log, dropped, 1, "lost") end
if verdict ~= 1 then return {0, verdict} end
local body = redis.call("HGET", settings, id)
remove(messages, settings, {id})
if receive_count ~= "1" then forget_past(releases, dead_records, id) end
log_event(log, dropped, 1, "succeeded")
if result then keep_result(result, at + 2, ARGV[at], ARGV[at + 1], body) end
if awaited then member_succeeded(value) end
return {}
