-- Store the length of a queue, for charts of its history.
--
--   KEYS[1]     zset  message id -> time it becomes visible (ms)
--   KEYS[2]     hash  attributes, counters, bodies
--   KEYS[3]     zset  times in which the queue did not change, see parts/unchanged; expires
--   KEYS[4]     hash  counters of the hour before the present one
--   KEYS[5..7]  hash  counters of the present minute, ten minutes and hour; they expire
--   ARGV   time of the sample and begin of its hour (s); seconds to keep each of the three
--
-- Totals are those of the last sample, lengths and ages the largest of all samples in that span of time. A queue that
-- has the same totals as in the last sample of the hour before, and is empty, or has only ready messages and as many as in
-- that whole hour, has a longer time in KEYS[3] instead.
-- Returns 1, or 0 when the queue does not exist.
--#include parts/clock
local messages, settings, times, hour_before = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local FIRST_SPAN, FIRST_TTL = 5, 3

local attributes = redis.call("HMGET", settings, "vt", "totalsent", "totalrecv")
if not attributes[1] then return 0 end
local sent, received = attributes[2] or "0", attributes[3] or "0"

local all, ready, first_ms = redis.call("ZCARD", messages), 0, nil
if all > 0 then
  ready = redis.call("ZCOUNT", messages, "-inf", integer(now_ms))
  first_ms = redis.call("ZRANGE", messages, 0, 0, "WITHSCORES")[2]
end

-- The time to which this sample of a queue belongs: the latest one or a new one; nil if it has changed meanwhile.
local function unchanged_time()
  local state = " " .. sent .. " " .. received .. (all > 0 and " " .. all .. " " .. first_ms or "")
  if ready < all or not state:find("^[%d ]+$") then return nil end -- another program may have written anything
  local latest = redis.call("ZREVRANGE", times, 0, 0)[1]
  if latest and latest:match(" .*") == state then return latest end
  local before = redis.call("HMGET", hour_before, "=sent", "=received", "=messages", "=ready")
  if before[1] ~= sent or before[2] ~= received then return nil end
  if all == 0 or (tonumber(before[3]) == all and tonumber(before[4]) == all) then return ARGV[2] .. state end
end

local unchanged = unchanged_time()
if unchanged then
  local old = redis.call("ZRANGEBYSCORE", times, "-inf", ARGV[1] - ARGV[5], "LIMIT", 0, 1000)
  redis.call("ZREM", times, unchanged, unpack(old)) -- removal first, as below
  redis.call("ZADD", times, ARGV[1], unchanged)
  redis.call("EXPIRE", times, ARGV[5])
  return 1
end
local waited_ms = ready > 0 and now_ms - tonumber(first_ms) or 0

local function raise_to(key, field, value)
  local before = tonumber(redis.call("HGET", key, field))
  if not before or value > before then redis.call("HSET", key, field, integer(value)) end
end

for n = 1, 3 do
  local key = KEYS[FIRST_SPAN + n - 1]
  redis.call("HDEL", key, "=sent", "=received") -- removal first, so that this works at the memory limit, too
  redis.call("HSET", key, "=sent", sent, "=received", received)
  raise_to(key, "=messages", all)
  raise_to(key, "=ready", ready)
  raise_to(key, "=oldest_ms", waited_ms)
  redis.call("EXPIRE", key, ARGV[FIRST_TTL + n - 1])
end
return 1
