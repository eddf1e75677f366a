-- Settle messages whose functions returned: store their results, delete the messages.
-- Of a member of a workflow, the call has the further keys and arguments of tasks/workflow/parts/member, and advances it.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> number of releases
--   KEYS[4]  hash  messages leased by this worker (parts/strike)
--   KEYS[5], KEYS[6]  stream and string: the event log, and how many events could not be written
--   KEYS[7]  hash  message id -> failure record of a dead letter in this queue
--   KEYS[8..] hash  result record of each message, in order
--   ARGV     strikes; name of the queue; worker; how many of the last words below all messages have in common (0, 3, 4),
--            and these; then the other words per message: id, begin and end (ms), value, receive count, attempt, seconds
--            to keep the record; events (parts/events)
--
-- Returns only the messages that were not deleted, position (from 0) and code in turn: 0 no such message, -1 lease lost.
--#include parts/strike
--#include parts/remove
--#include parts/events
--#include parts/past
--#include parts/keep_result
local messages, settings, releases, holds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local log, dropped, failures = KEYS[5], KEYS[6], KEYS[7]

local first, advance = 1, nil
if ARGV[1] == "" then
--#include tasks/workflow/parts/member
  advance = is_awaited() and member_succeeded
end

first = strike(holds, first)
local queue, worker, common = ARGV[first], ARGV[first + 1], ({ ["3"] = 3, ["4"] = 4 })[ARGV[first + 2]] or 0
local common_at, own_words, starts, fields, n = first + 3, 7 - common, {}, {}, 0
for at = common_at + common, last_argument - own_words + 1, own_words do
  n = n + 1
  starts[n] = at
  fields[2 * n - 1] = ARGV[at]
  fields[2 * n] = ARGV[at] .. ":rc"
end
local stored = redis.call("HMGET", settings, unpack(fields))

local function word(i, number)
  if number < own_words then return ARGV[starts[i] + number] end
  return ARGV[common_at + number - own_words]
end

-- A removal comes first: after it, a server at its memory limit accepts all other writes of this script.
redis.call("HDEL", holds, "")
local done, refused = {}, {}
for i = 1, n do
  local id, receive_count = fields[2 * i - 1], word(i, 4)
  if stored[2 * i] == receive_count then
    done[#done + 1] = id
    if receive_count ~= "1" then forget_past(releases, failures, id) end
    local body, began_ms, ended_ms = stored[2 * i - 1], word(i, 1), word(i, 2)
    keep_result(KEYS[7 + i], queue, worker, id, body, began_ms, ended_ms, word(i, 3), receive_count, word(i, 5), word(i, 6))
    log_event(log, dropped, i, "succeeded")
  else
    local is_there = redis.call("ZSCORE", messages, id)
    refused[#refused + 1] = i - 1
    refused[#refused + 1] = is_there and -1 or 0
    if is_there then log_event(log, dropped, i, "lost") end
  end
end
remove(messages, settings, done)
if advance and done[1] then advance(ARGV[3]) end
return refused
