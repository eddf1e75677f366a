-- Set when messages become visible that are unchanged since the caller read them, including messages in flight.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   ARGV     ms from now; channel of the queue; then per message: id, receive count when it was read ("0": none)
--
-- Returns per message: 1 done, 0 it is gone, -1 received since. Errors: QueueNotFound.
--#include parts/clock
--#include queue/moves/parts/seen
local messages, settings = KEYS[1], KEYS[2]
local visible_ms = integer(now_ms + ARGV[1])

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end

local ids, receive_counts = receipts_from(3, 2)
local verdicts = verdicts_since(messages, settings, ids, receive_counts)
local chosen, scores = {}, {}
for n, id in ipairs(ids) do
  if verdicts[n] == 1 then
    chosen[#chosen + 1] = id
    scores[#scores + 1], scores[#scores + 2] = visible_ms, id
  end
end
if #chosen > 0 then
  -- Remove, then add: a server at its memory limit refuses ZADD alone.
  redis.call("ZREM", messages, unpack(chosen))
  redis.call("ZADD", messages, unpack(scores))
  -- Idle workers check the queue again. A missing permission for the channel must not look like a failure.
  redis.pcall("PUBLISH", ARGV[2], redis.call("ZCARD", messages))
end
return verdicts
