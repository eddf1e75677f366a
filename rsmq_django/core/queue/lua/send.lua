-- Put messages on a queue, in the order given.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   ARGV     delay in ms, or the unit of the queue's own delay; channel to publish on or ""; then per message: suffix, body
--
-- Returns the new message ids; the id alone when it is one message.
-- Errors: QueueNotFound, MessageTooLong <bytes> <limit>; nothing is stored then.
--#include parts/clock
--#include parts/base36
--#include parts/units
--#include parts/raised
--#include parts/store_one
if #ARGV == 4 then return (store_one(KEYS[1], KEYS[2], unpack(ARGV))) end
--#include parts/message_id
--#include parts/store
return (store(KEYS[1], KEYS[2], ARGV[1], ARGV[2], 3))
