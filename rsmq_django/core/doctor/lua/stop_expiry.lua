-- Remove the time to live of the keys of a queue: at its end, all messages would be lost.
--
--   KEYS  zset and hash of the queue
--
-- Returns how many keys had a time to live.
local stopped = 0
for _, key in ipairs(KEYS) do stopped = stopped + redis.call("PERSIST", key) end
return stopped
