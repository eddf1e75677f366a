-- Advance the time of all messages of a queue: they become visible, or their leases expire, this much earlier.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   ARGV     ms
--
-- Returns how many messages there are. Only for tests: the loop has no bound.
local ids = redis.call("ZRANGE", KEYS[1], 0, -1)
for _, id in ipairs(ids) do redis.call("ZINCRBY", KEYS[1], -tonumber(ARGV[1]), id) end
return #ids
