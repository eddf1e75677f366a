-- End a lease for good: the message moves to the dead-letter queue with its id, body, receive count and first receive,
-- and a failure record says why.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> deliveries that were given back unused; id:lives -> what went wrong in earlier lives
--   KEYS[4]  hash  what this worker holds (shared/strike)
--   KEYS[5], KEYS[6]  stream and string: the event log, and how many events could not be written
--   KEYS[7], KEYS[8]  zset and hash of the dead-letter queue
--   KEYS[9]  hash  message id -> failure record (JSON) of the dead-letter queue
--   KEYS[10]  hash  result record; absent when none is kept
--   ARGV     strikes; id, receive count, failure record; if a result is kept: seconds to keep it, number of words, words;
--            events (shared/events)
--
-- Returns 1 done, 0 no such message, -1 lease lost. Errors: DeadLetterQueueNotFound; nothing was written then.
--#include shared/clock
--#include shared/counters
--#include shared/fence
--#include shared/remove
--#include shared/results
--#include shared/strike
--#include shared/events
local messages, settings, releases, holds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local log, dropped = KEYS[5], KEYS[6]
local dead, dead_settings, failures, result = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local at = 2 * ARGV[1] + 2 -- behind the strikes, which come when nothing can fail any more
local id, receive_count, record = ARGV[at], ARGV[at + 1], ARGV[at + 2]

local verdict = verdicts_on(messages, settings, {id}, {receive_count})[1]
if verdict ~= 1 then
  local _, struck = strike(holds, 1)
  if verdict == -1 and struck > 0 then log_event(log, dropped, 1, id, "lost") end
  return verdict
end
if redis.call("HEXISTS", dead_settings, "vt") == 0 then return redis.error_reply("RSMQ DeadLetterQueueNotFound") end

-- A key of the wrong type raises here, before the message leaves its queue: nothing is undone after an error.
redis.call("ZCARD", dead)
redis.call("HLEN", failures)
local lives = redis.call("HGET", releases, id .. ":lives")
-- The record is one JSON object without a field of that name, written by the worker.
if lives then record = record:sub(1, -2) .. ', "history": ' .. lives .. "}" end
redis.call("HDEL", releases, id, id .. ":crashes", id .. ":lives")
strike(holds, 1)

local values = redis.call("HMGET", settings, id, id .. ":rc", id .. ":fr")
remove(messages, settings, {id})
redis.call("ZADD", dead, integer(now_ms), id)
redis.call("HSET", dead_settings, id, values[1] or "", id .. ":rc", values[2])
if values[3] then redis.call("HSET", dead_settings, id .. ":fr", values[3]) end
raise_counter(dead_settings, "totalsent", 1)
redis.call("HSET", failures, id, record)
log_event(log, dropped, 1, id, "dead")
if result then
  write_result(result, ARGV[at + 3], at + 4)
  redis.call("HSET", result, "body", values[1] or "")
end
return 1
