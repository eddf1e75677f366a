-- Put task messages of an outbox on their queue, in the order given. A message that was sent before is left out, while it
-- is remembered or has a result record: the relay may have stopped before it could mark the row as sent, or an operator
-- sends rows again after a failover.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  zset  task id -> time until which it is remembered as sent (ms); expires with the last of them
--   KEYS[4..] hash  result record of each message that keeps one, in order
--   ARGV     channel, queue name, ms to remember sent messages, seconds that an unfinished record is kept;
--            then per message: task id, delay in ms or the unit of the queue's own, "1" if its result is kept, body
--
-- Returns per message: 1 sent, 0 it was sent before, -2 too long for the queue. Errors: QueueNotFound.
--#include parts/clock
--#include parts/ids
--#include parts/units
--#include parts/counters
--#include parts/note
local messages, settings, remembered = KEYS[1], KEYS[2], KEYS[3]
local channel, queue_name, memory_ms, record_ttl_s = unpack(ARGV, 1, 4)
local FORGET_AT_ONCE = 1000

local stored = redis.call("HMGET", settings, "delay", "maxsize", "vt")
if not stored[3] then return redis.error_reply("RSMQ QueueNotFound") end
local max_size = tonumber(stored[2]) or -1
local until_ms = integer(now_ms + memory_ms)

local verdicts, ids, scores, bodies, memory, records = {}, {}, {}, {}, {}, {}
local key = 3
for at = 5, #ARGV, 4 do
  local task_id, delay, keeps_result, body = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  if keeps_result == "1" then key = key + 1 end
  local verdict = 1
  local is_known = redis.call("ZSCORE", remembered, task_id)
  if is_known or (keeps_result == "1" and redis.call("EXISTS", KEYS[key]) == 1) then
    verdict = 0
    -- Always a write: a caller that waits for replicas waits for the writes of this call.
    memory[#memory + 1], memory[#memory + 2] = until_ms, task_id
  elseif max_size >= 0 and #body > max_size then
    verdict = -2
  else
    local n, id = #ids, message_id(#ids, task_id)
    local visible_ms = now_ms + (given_or_own_ms(delay, stored[1]) or 0)
    ids[n + 1] = id
    scores[2 * n + 1], scores[2 * n + 2] = integer(visible_ms), id
    bodies[2 * n + 1], bodies[2 * n + 2] = id, body
    memory[#memory + 1], memory[#memory + 2] = until_ms, task_id
    if keeps_result == "1" then records[#records + 1] = {KEYS[key], id, visible_ms} end
  end
  verdicts[#verdicts + 1] = verdict
end
if #ids > 0 then redis.call("ZADD", messages, "NX", unpack(scores)) end
if #memory > 0 then
  redis.call("ZADD", remembered, unpack(memory))
  redis.call("PEXPIRE", remembered, memory_ms)
end
if #ids == 0 then return verdicts end
redis.call("HSET", settings, unpack(bodies))
for _, record in ipairs(records) do
  note(record[1], record_ttl_s, record[3], "status", "READY", "queue", queue_name, "message", record[2])
end
raise_counter(settings, "totalsent", #ids)
local old = redis.call("ZRANGEBYSCORE", remembered, "-inf", integer(now_ms), "LIMIT", 0, FORGET_AT_ONCE)
if #old > 0 then redis.call("ZREM", remembered, unpack(old)) end
-- A missing permission for the wake-up must not look like a failed send: the messages are stored.
redis.pcall("PUBLISH", channel, redis.call("ZCARD", messages))
return verdicts
