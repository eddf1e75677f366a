-- Move one chunk of a stage to the end of a topic.
--
--   KEYS[1]  string  {topic}:nextIndex: index of the last message
--   KEYS[2]  hash    meta of the topic
--   KEYS[3]  zset    time index: first index of a slot -> start of the slot (ms)
--   KEYS[4]  stream  wake
--   KEYS[5]  zset    stage: final id -> time of staging (ms)
--   KEYS[6]  hash    stage: final id -> body
--   KEYS[7]  hash    job
--   ARGV     most messages (1..1000); name of the topic; length of a slot in ms
--
-- The keys of the messages follow from the index, which is not known before: all of a topic share its slot.
-- Returns how many were moved; 0 when the stage is empty.
--#include shared/clock
local next_index, time_index, wake = KEYS[1], KEYS[3], KEYS[4]
local stage, bodies, job = KEYS[5], KEYS[6], KEYS[7]
local topic, slot_ms = ARGV[2], tonumber(ARGV[3])

local ids = redis.call("ZRANGE", stage, 0, ARGV[1] - 1)
if #ids == 0 then return 0 end
local values = redis.call("HMGET", bodies, unpack(ids))
redis.call("ZREM", stage, unpack(ids))
redis.call("HDEL", bodies, unpack(ids))

local last = redis.call("INCRBY", next_index, #ids)
local words = {}
for i, body in ipairs(values) do
  words[2 * i - 1] = topic .. ":messages:" .. integer(last - #ids + i)
  words[2 * i] = body or ""
end
redis.call("MSET", unpack(words))

local slot = now_ms - now_ms % slot_ms
local newest = redis.call("ZRANGE", time_index, -1, -1, "WITHSCORES")
if not newest[2] or tonumber(newest[2]) < slot then
  redis.call("ZADD", time_index, integer(slot), integer(last - #ids + 1))
end
-- The index may have gone back, which a stream refuses; readers look once a second anyway.
redis.pcall("XADD", wake, "MAXLEN", 1, integer(last) .. "-0", "e", "")
redis.call("HINCRBY", job, "published", #ids)
return #ids
