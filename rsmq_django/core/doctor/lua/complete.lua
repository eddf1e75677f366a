-- Add the missing attributes of a queue, and list it. Does nothing when it was deleted meanwhile.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  set   queue names
--   ARGV     name; visibility timeout, delay and maximum size to use when they are missing
--
-- Returns how many attributes and names were added.
local messages, settings, queues = KEYS[1], KEYS[2], KEYS[3]
local now_s = redis.call("TIME")[1]
if redis.call("EXISTS", messages) == 0 and redis.call("EXISTS", settings) == 0 then return 0 end

local added = redis.call("HSETNX", settings, "vt", ARGV[2])
added = added + redis.call("HSETNX", settings, "delay", ARGV[3])
added = added + redis.call("HSETNX", settings, "maxsize", ARGV[4])
redis.call("HSETNX", settings, "created", now_s)
redis.call("HSETNX", settings, "modified", now_s)
return added + redis.call("SADD", queues, ARGV[1])
