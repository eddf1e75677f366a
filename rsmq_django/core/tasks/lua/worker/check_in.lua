-- Store the progress of a running task, and extend its lease.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  result record; absent when none is kept
--   ARGV     id, receive count, progress as JSON ("": none), ms from now until which it stays hidden (0: unchanged), queue
--
-- Returns 1 done, 0 no such message, -1 lease lost (nothing was written).
--#include parts/clock
--#include parts/fence
--#include parts/results
local messages, settings, result = KEYS[1], KEYS[2], KEYS[3]
local id, receive_count, progress, hidden_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local verdict = verdicts_on(messages, settings, {id}, {receive_count})[1]
if verdict ~= 1 then return verdict end
if hidden_ms > 0 then
  local visible_ms = math.max(tonumber(redis.call("ZSCORE", messages, id)), now_ms + hidden_ms)
  redis.call("ZREM", messages, id)
  redis.call("ZADD", messages, integer(visible_ms), id)
end
if result and progress ~= "" and redis.call("EXISTS", result) == 1 and is_own(result, id, ARGV[5]) then
  redis.call("HSET", result, "progress", progress, "progress_ms", integer(now_ms))
end
return 1
