-- Receive the oldest ready messages and hide them for their visibility timeout.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  phantoms that were removed (parts/phantoms)
--   ARGV     count (1..1000); visibility timeout in ms, or the unit of the queue's own timeout
--
-- Returns id, body, receive count, first receive (ms or "") of each, in one flat list.
-- Errors: QueueNotFound, BrokenQueue <field> <value>.
--#include parts/clock
--#include parts/units
--#include parts/raised
local messages, settings, phantoms = KEYS[1], KEYS[2], KEYS[3]
local count, timeout = tonumber(ARGV[1]), ARGV[2]

local stored = redis.call("HMGET", settings, "vt", "totalrecv")
if not stored[1] then return redis.error_reply("RSMQ QueueNotFound") end
local visibility_ms = given_or_own_ms(timeout, stored[1])
if not visibility_ms then
  -- Another client wrote it: a line break in an error would look like a second reply.
  return redis.error_reply("RSMQ BrokenQueue vt " .. stored[1]:sub(1, 40):gsub("[%c\127-\255]", "?"))
end

-- One new message, in half the time: code for all other cases follows below.
if count == 1 then
  local now_text = integer(now_ms)
  local id = redis.call("ZRANGEBYSCORE", messages, "-inf", now_text, "LIMIT", 0, 1)[1]
  if not id then return {} end
  local counted = id .. ":rc"
  local values = redis.call("HMGET", settings, id, counted)
  local body = values[1]
  if body and not values[2] then
    redis.call("HDEL", settings, ":fr") -- removal first, for the memory limit: see parts/hold
    redis.call("ZADD", messages, integer(now_ms + visibility_ms), id)
    redis.call("HSET", settings, counted, "1", id .. ":fr", now_text, "totalrecv", raised(stored[2], 1))
    return {id, body, "1", now_text}
  end
end
--#include parts/raise_counter
--#include parts/hold
--#include parts/phantoms
--#include parts/hand_out
local found, out = hand_out(messages, settings, phantoms, count, now_ms + visibility_ms), {}
local values, receive_counts, first_receives = found.values, found.receive_counts, found.first_receives
for i, id in ipairs(found.ids) do
  out[4 * i - 3] = id
  out[4 * i - 2] = values[2 * i - 1]
  out[4 * i - 1] = receive_counts[i]
  out[4 * i] = first_receives[i]
end
return out
