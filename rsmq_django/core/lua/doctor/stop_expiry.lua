-- Let the keys of a queue live for ever: a time to live would take all messages at once.
--
--   KEYS  zset and hash of the queue
--
-- Returns how many keys had a time to live.
local stopped = 0
for _, key in ipairs(KEYS) do stopped = stopped + redis.call("PERSIST", key) end
return stopped
