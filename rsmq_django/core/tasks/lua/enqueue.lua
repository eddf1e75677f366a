-- Put task messages on a queue, in the order given, and create a result record for each.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  zset  channel of a worker process that waits for messages -> how many messages it holds (parts/wake)
--   KEYS[4..] hash  result record of each message, in order; none when no results are kept
--   ARGV     delay in ms, or the unit of the queue's own delay; channel; seconds to keep an unfinished record; queue name;
--            then per message: suffix, body
--
-- Returns the new message ids; the id alone when it is one message.
-- Errors: QueueNotFound, MessageTooLong <bytes> <limit>; nothing is stored then.
--#include parts/clock
--#include parts/base36
--#include parts/units
--#include parts/raised
--#include parts/note
--#include parts/store_one
if #ARGV == 6 then
  local id, visible_ms = store_one(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[5], ARGV[6], KEYS[3])
  if KEYS[4] and visible_ms then
    note(KEYS[4], ARGV[3], visible_ms, "status", "READY", "queue", ARGV[4], "message", id)
  end
  return id
end
--#include parts/message_id
--#include parts/store
local ids, visible_ms = store(KEYS[1], KEYS[2], ARGV[1], ARGV[2], 5)
if ids.err then return ids end
for n = 4, #KEYS do
  note(KEYS[n], ARGV[3], visible_ms, "status", "READY", "queue", ARGV[4], "message", ids[n - 3])
end
return ids
