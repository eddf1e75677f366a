-- Read messages by index: the same range always returns the same messages, as long as they are stored.
--
--   KEYS[1..3]   last index, meta, time (topic/publish)
--   KEYS[4], KEYS[5] headers, keys
--   ARGV     prefix of message keys, first index, how many (1..1000); number of bytes of each body, without it all
--
-- Returns the last index, the lowest that is kept, the index of the first message, their number, the number of slots;
-- then first index and start (ms) of each slot, the bodies (nil for a hole), the size of each body if a number of bytes
-- was given, keys and headers if there are any.
-- Errors: TopicBroken <field> <value>.
--#include topic/parts/index
--#include topic/parts/collect
--#include topic/parts/slots
local log = {index = KEYS[1], meta = KEYS[2], headers = KEYS[4], keys = KEYS[5], prefix = ARGV[1]}
local slots, longest = KEYS[3], tonumber(ARGV[4])

-- A key of another type is a hole, as it is for MGET.
local function beginning_of(key)
  local size = redis.pcall("STRLEN", key)
  if type(size) ~= "number" or (size == 0 and redis.call("EXISTS", key) == 0) then return false, 0 end
  return longest > 0 and redis.call("GETRANGE", key, 0, longest - 1) or "", size
end

local failure = open_log(log)
if failure then return failure end
local from = math.max(tonumber(ARGV[2]), log.first)
local count = math.max(0, math.min(tonumber(ARGV[2]) + tonumber(ARGV[3]) - 1, log.last) - from + 1)
if count == 0 then return {log.last, log.first, from, 0, 0} end

local rank = math.max(0, slot_rank(slots, from))
local found = redis.call("ZRANGE", slots, rank, math.max(rank, slot_rank(slots, from + count - 1)), "WITHSCORES")
local reply = {log.last, log.first, from, count, #found / 2}
for i, word in ipairs(found) do reply[5 + i] = word end
local at, keys = #reply, message_keys(log, from, from + count - 1)
if longest then
  for i, key in ipairs(keys) do reply[at + i], reply[at + count + i] = beginning_of(key) end
else
  local bodies = redis.call("MGET", unpack(keys))
  for i = 1, count do reply[at + i] = bodies[i] end
end
return append_extras(reply, log, numbers(from, count))
