-- Put task messages on a queue again that may have been lost in a failover; those that the server still has stay as they
-- are. Always a write: a caller that waits for replicas waits for the writes of this call.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  zset  processes that wait for messages, not used: all of them are woken
--   KEYS[4..] hash  result record of each message, in order; none when no results are kept
--   ARGV     delay in ms, or the unit of the queue's own delay; channel; seconds to keep an unfinished record; queue name;
--            then per message: task id, body, id of the message that was sent
--
-- Returns the ids of the messages: new ones for those that are sent again.
-- Errors: QueueNotFound, MessageTooLong <bytes> <limit>; nothing is stored then.
--#include parts/clock
--#include parts/base36
--#include parts/units
--#include parts/raised
--#include parts/note
local messages, settings = KEYS[1], KEYS[2]
local delay, channel, record_ttl_s, queue = unpack(ARGV, 1, 4)

local ids, lost, again = {}, {}, {}
for at = 5, #ARGV, 3 do
  local n, old = #ids + 1, ARGV[at + 2]
  local record = KEYS[n + 3]
  ids[n] = old
  if not (redis.call("ZSCORE", messages, old) or (record and redis.call("EXISTS", record) == 1)) then
    lost[#lost + 1] = n
    again[#again + 1], again[#again + 2] = ARGV[at], ARGV[at + 1]
  end
end
if #lost == 0 then
  if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end
  redis.call("HINCRBY", settings, "totalsent", 0)
  return ids
end
local ARGV = again -- parts/store reads its messages from there
--#include parts/message_id
--#include parts/store
local new, visible_ms = store(messages, settings, delay, channel, 1)
if new.err then return new end
for i, n in ipairs(lost) do
  ids[n] = new[i]
  if KEYS[n + 3] then
    note(KEYS[n + 3], record_ttl_s, visible_ms, "status", "READY", "queue", queue, "message", new[i])
  end
end
return ids
