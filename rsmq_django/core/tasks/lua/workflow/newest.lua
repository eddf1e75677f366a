-- Read the newest workflows, the newest first.
--
--   KEYS[1]  zset  workflow id -> time of its creation (ms)
--   ARGV     maximum number
local ids, reply = redis.call("ZRANGE", KEYS[1], -tonumber(ARGV[1]), -1), {}
for n, id in ipairs(ids) do reply[#ids + 1 - n] = id end
return reply
