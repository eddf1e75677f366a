-- Read the state of a queue without a scan of its messages.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  phantoms that were removed (parts/phantoms)
--   ARGV     the longest time (ms) for which a client may hide a message
--
-- Returns the types of the first two keys and their times to live (ms, -1: none); vt, delay, maxsize, created,
-- modified, totalrecv, totalsent (nil: absent); the number of fields, of messages, of scores in seconds, in
-- microseconds and beyond the longest time (without calls of tasks: they may be due in years); the number of removed
-- phantoms, and a note on the last one; the first ids.
--#include parts/clock
local SECONDS_BELOW, MICROSECONDS_FROM = 1e11, 1e14
local messages, settings, phantoms, longest_ms = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1])
local index_type, hash_type = redis.call("TYPE", messages).ok, redis.call("TYPE", settings).ok

local reply = {index_type, hash_type, redis.call("PTTL", messages), redis.call("PTTL", settings)}

local attributes, fields = {}, 0
if hash_type == "hash" then
  attributes = redis.call("HMGET", settings, "vt", "delay", "maxsize", "created", "modified", "totalrecv", "totalsent")
  fields = redis.call("HLEN", settings)
end
for i = 1, 7 do reply[4 + i] = attributes[i] or false end
reply[12] = fields

local CALLS_LOOKED_AT = 1000
-- A call of a task that was never received: its sender requested that time.
local function is_waiting_call(id)
  local body, receive_count = unpack(redis.call("HMGET", settings, id, id .. ":rc"))
  if receive_count or not body then return false end
  return body:find('"task":', 1, true) or body:find('"encrypted":', 1, true) or body:find('"signature":', 1, true)
end

local function waiting_calls(after)
  local count = 0
  local bound = "(" .. integer(MICROSECONDS_FROM)
  for _, id in ipairs(redis.call("ZRANGEBYSCORE", messages, after, bound, "LIMIT", 0, CALLS_LOOKED_AT)) do
    if is_waiting_call(id) then count = count + 1 end
  end
  return count
end

local numbers, first = {0, 0, 0, 0}, {}
if index_type == "zset" then
  local too_late = "(" .. integer(now_ms + longest_ms)
  numbers = {
    redis.call("ZCARD", messages),
    redis.call("ZCOUNT", messages, "-inf", "(" .. integer(SECONDS_BELOW)),
    redis.call("ZCOUNT", messages, integer(MICROSECONDS_FROM), "+inf"),
    redis.call("ZCOUNT", messages, too_late, "(" .. integer(MICROSECONDS_FROM)),
  }
  if numbers[4] > 0 and hash_type == "hash" then numbers[4] = numbers[4] - waiting_calls(too_late) end
  first = redis.call("ZRANGE", messages, 0, 2)
end
for i = 1, 4 do reply[12 + i] = numbers[i] end

local removed = redis.call("TYPE", phantoms).ok == "hash" and tonumber(redis.call("HGET", phantoms, "removed") or "")
reply[17] = removed or 0
reply[18] = removed and redis.call("HGET", phantoms, removed % 100) or ""
for i, id in ipairs(first) do reply[18 + i] = id end
return reply
