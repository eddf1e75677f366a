-- Settle messages whose functions returned, without results: delete them.
-- Of a member of a workflow, the call has the further keys and arguments of tasks/workflow/parts/member, and advances it.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> number of releases
--   KEYS[4]  hash  messages leased by this worker (parts/strike)
--   KEYS[5], KEYS[6]  stream and string: the event log, and how many events could not be written
--   KEYS[7]  hash  message id -> failure record of a dead letter in this queue
--   ARGV     strikes; the receive count of all messages, then their ids; or "", then per message: id, receive count;
--            events (parts/events)
--
-- Returns only the messages that were not deleted, position (from 0) and code in turn: 0 no such message, -1 lease lost.
--#include parts/strike
--#include parts/events
--#include parts/past
local messages, settings, releases, holds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local log, dropped, failures = KEYS[5], KEYS[6], KEYS[7]

local first, advance = 1, nil
if ARGV[1] == "" then
--#include tasks/workflow/parts/member
  advance = is_awaited() and member_succeeded
end

first = strike(holds, first)
local common_count, ids, counts, count_fields, n = ARGV[first], {}, {}, {}, 0
for at = first + 1, last_argument, common_count == "" and 2 or 1 do
  n = n + 1
  ids[n] = ARGV[at]
  count_fields[n] = ARGV[at] .. ":rc"
  if common_count == "" then counts[n] = ARGV[at + 1] end
end
local stored = redis.call("HMGET", settings, unpack(count_fields))
local done, fields, refused, lost, d = {}, {}, {}, {}, 0
for i = 1, n do
  local id, receive_count = ids[i], counts[i] or common_count
  if stored[i] == receive_count then
    d = d + 1
    done[d] = i
    fields[3 * d - 2] = id
    fields[3 * d - 1] = count_fields[i]
    fields[3 * d] = id .. ":fr"
    if receive_count ~= "1" then forget_past(releases, failures, id) end
  else
    local is_there = redis.call("ZSCORE", messages, id)
    refused[#refused + 1] = i - 1
    refused[#refused + 1] = is_there and -1 or 0
    if is_there then lost[#lost + 1] = i end
  end
end
if d > 0 then
  local to_remove = ids
  if d < n then
    to_remove = {}
    for k = 1, d do to_remove[k] = ids[done[k]] end
  end
  redis.call("ZREM", messages, unpack(to_remove))
  redis.call("HDEL", settings, unpack(fields))
end
if is_logged then
  for _, i in ipairs(done) do log_event(log, dropped, i, "succeeded") end
  for _, i in ipairs(lost) do log_event(log, dropped, i, "lost") end
end
if advance and d > 0 then advance(ARGV[3]) end
return refused
