-- Move a failed message to the dead-letter queue with its id, body, receive count and first receive, and store a failure
-- record. A worker that consumes the dead-letter queue begins with the first attempt: all deliveries so far count as
-- released. A discarded message is deleted instead. Of a member of a workflow, the call has the further keys and arguments of
-- tasks/workflow/parts/member, and counts it as failed.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> number of releases; id:lives -> history before a redrive
--   KEYS[4]  hash  messages leased by this worker (parts/strike)
--   KEYS[5], KEYS[6]  stream and string: the event log, and how many events could not be written
--   KEYS[7]  hash  message id -> failure record (JSON) of a dead letter in this queue
--   KEYS[8..11]  zset, hash, failure records and releases of the dead-letter queue; for a discarded message, those of its
--            own queue, which are not changed
--   KEYS[12]  hash  result record; absent when none is kept
--   ARGV     strikes; id, receive count, failure record, or "" to discard the message; if a result is kept: seconds to keep
--            it, number of words, words;
--            events (parts/events)
--
-- Returns 1 done, 0 no such message, -1 lease lost. Errors: DeadLetterQueueNotFound; nothing was written then.
--#include tasks/worker/parts/burying
local first, advance = 1, nil
if ARGV[1] == "" then
--#include tasks/workflow/parts/member
  advance = is_awaited() and member_failed
end

local own_keys = ARGV[1] == "" and tonumber(ARGV[2]) or #KEYS
local verdict = bury(first, own_keys == 12 and KEYS[12])
if advance and verdict == 1 then advance(ARGV[3]) end
return verdict
