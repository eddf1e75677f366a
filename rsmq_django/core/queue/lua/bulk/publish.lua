-- Move one chunk of a stage into its queue.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  zset  stage: final id -> time it becomes visible (ms)
--   KEYS[4]  hash  stage: final id -> body
--   KEYS[5]  hash  job
--   ARGV     maximum number of messages (1..1000); channel of the queue
--
-- Returns how many were moved; 0 when the stage is empty. Errors: QueueNotFound.
--#include parts/counters
local messages, settings, stage, bodies, job = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local rows = redis.call("ZRANGE", stage, 0, ARGV[1] - 1, "WITHSCORES")
if #rows == 0 then return 0 end
if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end
redis.call("ZCARD", messages) -- a key of the wrong type fails here, before any removal

local ids, scores, values = {}, {}, {}
for i = 1, #rows, 2 do
  ids[#ids + 1] = rows[i]
  scores[i], scores[i + 1] = rows[i + 1], rows[i]
end
for i, body in ipairs(redis.call("HMGET", bodies, unpack(ids))) do
  values[2 * i - 1], values[2 * i] = ids[i], body or ""
end
redis.call("ZREM", stage, unpack(ids))
redis.call("HDEL", bodies, unpack(ids))
redis.call("HSET", settings, unpack(values))
redis.call("ZADD", messages, unpack(scores))
raise_counter(settings, "totalsent", #ids)
redis.call("HINCRBY", job, "published", #ids)
if redis.call("EXISTS", stage) == 0 then redis.pcall("PUBLISH", ARGV[2], redis.call("ZCARD", messages)) end
return #ids
