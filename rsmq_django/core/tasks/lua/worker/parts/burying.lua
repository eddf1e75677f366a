-- Move one message to its dead-letter queue; keys and arguments are those of tasks/worker/bury, which describes them.
--#include parts/clock
--#include parts/counters
--#include parts/fence
--#include parts/remove
--#include parts/results
--#include parts/strike
--#include parts/events
--#include parts/past
--#include parts/announce_end
local messages, settings, releases, holds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local log, dropped, own_failures = KEYS[5], KEYS[6], KEYS[7]
local dead, dead_settings, failures, dead_releases = KEYS[8], KEYS[9], KEYS[10], KEYS[11]

-- Check that the dead-letter queue can store a message. A key of the wrong type raises here, before the message leaves its
-- queue: no write is undone after an error. Returns an error reply when the queue does not exist.
local function open_dead_letters()
  if redis.call("HEXISTS", dead_settings, "vt") == 0 then return redis.error_reply("RSMQ DeadLetterQueueNotFound") end
  redis.call("ZCARD", dead)
  redis.call("HLEN", failures)
  redis.call("HLEN", dead_releases)
end

-- values: body, receive count, first receive.
local function add_dead_letter(id, values, record)
  redis.call("ZADD", dead, integer(now_ms), id)
  redis.call("HSET", dead_settings, id, values[1] or "", id .. ":rc", values[2])
  if values[3] then redis.call("HSET", dead_settings, id .. ":fr", values[3]) end
  raise_counter(dead_settings, "totalsent", 1)
  redis.call("HSET", failures, id, record)
  redis.call("HSET", dead_releases, id, values[2])
end

-- first: index in ARGV of the strikes; result: key of the result record, if one is kept. Returns its reply.
local function bury(first, result)
  local at = first + 2 * ARGV[first] + 1 -- after the strikes, which are carried out when nothing can fail any more
  local id, receive_count, record = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local is_discarded = record == ""

  local verdict = verdicts_on(messages, settings, {id}, {receive_count})[1]
  if verdict ~= 1 then
    local _, removed_count = strike(holds, first)
    if verdict == -1 and removed_count > 0 then log_event(log, dropped, 1, "lost") end
    return verdict
  end
  local failure = not is_discarded and open_dead_letters()
  if failure then return failure end
  local lives = redis.call("HGET", releases, id .. ":lives")
  -- The record is one JSON object without a field of that name, written by the worker.
  if lives then record = record:sub(1, -2) .. ', "history": ' .. lives .. "}" end
  forget_past(releases, own_failures, id)
  strike(holds, first)

  local values = redis.call("HMGET", settings, id, id .. ":rc", id .. ":fr")
  remove(messages, settings, {id})
  if not is_discarded then add_dead_letter(id, values, record) end
  log_event(log, dropped, 1, is_discarded and "discarded" or "dead")
  if result then
    write_result(result, ARGV[at + 3], at + 4)
    local is_ours, awaited_by = is_own(result, id, ARGV[at + 4 + ARGV[at + 4] - 2])
    if is_ours then set_fields(result, "body", values[1] or "") end
    announce_end(result, is_ours and awaited_by)
  end
  return 1
end
