-- Say in which of many queues a message is. Nothing is changed.
--
--   KEYS     per queue: zset of its messages
--   ARGV[1]  id of the message
--
-- Returns the numbers of the queues that have it, from 1. A queue that another program broke has none.
local out = {}
for at, messages in ipairs(KEYS) do
  local score = redis.pcall("ZSCORE", messages, ARGV[1])
  if type(score) == "string" then out[#out + 1] = at end
end
return out
