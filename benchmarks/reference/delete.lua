-- The least work that deletes messages as RSMQ does: by id, whoever holds them.
--   KEYS  zset message id -> time it becomes visible (ms); hash attributes, counters, bodies
--   ARGV  ids
-- Returns how many there were.
local messages, settings = KEYS[1], KEYS[2]
local fields = {}
for i, id in ipairs(ARGV) do fields[3 * i - 2], fields[3 * i - 1], fields[3 * i] = id, id .. ":rc", id .. ":fr" end
redis.call("HDEL", settings, unpack(fields))
return redis.call("ZREM", messages, unpack(ARGV))
