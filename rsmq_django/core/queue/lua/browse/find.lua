-- Find the queues that contain a message. Read-only.
--
--   KEYS     per queue: zset of its messages
--   ARGV[1]  id of the message
--
-- Returns the positions of these queues, from 1. A queue that another program broke is not among them.
local out = {}
for at, messages in ipairs(KEYS) do
  local score = redis.pcall("ZSCORE", messages, ARGV[1])
  if type(score) == "string" then out[#out + 1] = at end
end
return out
