-- Move one message to its dead-letter queue; keys and arguments are those of worker/bury, which says what they are.
--#include shared/clock
--#include shared/counters
--#include shared/fence
--#include shared/remove
--#include shared/results
--#include shared/strike
--#include shared/events
local messages, settings, releases, holds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local log, dropped = KEYS[5], KEYS[6]
local dead, dead_settings, failures = KEYS[7], KEYS[8], KEYS[9]

-- first: index in ARGV of the strikes; result: key of the result record, if one is kept. Returns what worker/bury does.
local function bury(first, result)
  local at = first + 2 * ARGV[first] + 1 -- behind the strikes, which come when nothing can fail any more
  local id, receive_count, record = ARGV[at], ARGV[at + 1], ARGV[at + 2]

  local verdict = verdicts_on(messages, settings, {id}, {receive_count})[1]
  if verdict ~= 1 then
    local _, struck = strike(holds, first)
    if verdict == -1 and struck > 0 then log_event(log, dropped, 1, "lost") end
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
  strike(holds, first)

  local values = redis.call("HMGET", settings, id, id .. ":rc", id .. ":fr")
  remove(messages, settings, {id})
  redis.call("ZADD", dead, integer(now_ms), id)
  redis.call("HSET", dead_settings, id, values[1] or "", id .. ":rc", values[2])
  if values[3] then redis.call("HSET", dead_settings, id .. ":fr", values[3]) end
  raise_counter(dead_settings, "totalsent", 1)
  redis.call("HSET", failures, id, record)
  log_event(log, dropped, 1, "dead")
  if result then
    write_result(result, ARGV[at + 3], at + 4)
    set_fields(result, "body", values[1] or "")
  end
  return 1
end
