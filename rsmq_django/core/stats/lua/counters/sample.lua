-- Store the length of a queue, for charts of its history.
--
--   KEYS[1]     zset  message id -> time it becomes visible (ms)
--   KEYS[2]     hash  attributes, counters, bodies
--   KEYS[3..5]  hash  counters of the present minute, ten minutes and hour; they expire
--   ARGV   seconds to keep each of the three
--
-- Totals are those of the last sample, lengths and ages the largest of all samples in that span of time.
-- Returns 1, or 0 when the queue does not exist.
--#include parts/clock
local messages, settings = KEYS[1], KEYS[2]

local attributes = redis.call("HMGET", settings, "vt", "totalsent", "totalrecv")
if not attributes[1] then return 0 end
local all = redis.call("ZCARD", messages)
local ready = redis.call("ZCOUNT", messages, "-inf", integer(now_ms))
local waited_ms = 0
if ready > 0 then waited_ms = now_ms - tonumber(redis.call("ZRANGE", messages, 0, 0, "WITHSCORES")[2]) end

local function raise_to(key, field, value)
  local before = tonumber(redis.call("HGET", key, field))
  if not before or value > before then redis.call("HSET", key, field, integer(value)) end
end

for n = 1, 3 do
  local key = KEYS[n + 2]
  redis.call("HDEL", key, "=sent", "=received") -- removal first, so that this works at the memory limit, too
  redis.call("HSET", key, "=sent", attributes[2] or "0", "=received", attributes[3] or "0")
  raise_to(key, "=messages", all)
  raise_to(key, "=ready", ready)
  raise_to(key, "=oldest_ms", waited_ms)
  redis.call("EXPIRE", key, ARGV[n])
end
return 1
