-- Create a queue and list it.
--
--   KEYS[1]  hash  attributes, counters, bodies
--   KEYS[2]  set   queue names
--   ARGV     name, visibility timeout (s), delay (s), maximum size (bytes or -1)
--
-- Returns 1 created, 0 it exists. An existing queue keeps its attributes but is listed again, and missing attributes are
-- added: this repairs a queue after a crash of another client between two steps.
local settings, queues = KEYS[1], KEYS[2]
local name, visibility_timeout_s, delay_s, max_size = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local now_s = redis.call("TIME")[1]

local created = redis.call("HSETNX", settings, "vt", visibility_timeout_s)
redis.call("HSETNX", settings, "delay", delay_s)
redis.call("HSETNX", settings, "maxsize", max_size)
redis.call("HSETNX", settings, "created", now_s)
redis.call("HSETNX", settings, "modified", now_s)
redis.call("SADD", queues, name)
return created
