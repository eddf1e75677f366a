-- Remove a queue whose messages cannot be received, if it has no bodies left: its senders then get QueueNotFound,
-- instead of losing their messages.
--
--   KEYS[1]  hash  attributes, counters, bodies
--   KEYS[2]  set   queue names
--   ARGV     name
--
-- Returns 1 done, 0 it is not empty or not listed.
local settings, queues = KEYS[1], KEYS[2]
local attributes = 0
for _, field in ipairs({"vt", "delay", "maxsize", "created", "modified", "totalrecv", "totalsent"}) do
  attributes = attributes + redis.call("HEXISTS", settings, field)
end
if redis.call("HLEN", settings) > attributes then return 0 end
redis.call("UNLINK", settings)
return redis.call("SREM", queues, ARGV[1])
