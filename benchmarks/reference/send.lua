-- The least work that stores messages in RSMQ's format.
--   KEYS  zset message id -> time it becomes visible (ms); hash attributes, counters, bodies
--   ARGV  per message: id, body
-- Returns how many.
local messages, settings = KEYS[1], KEYS[2]
local time = redis.call("TIME")
local now_text = string.format("%.0f", time[1] * 1000 + math.floor(time[2] / 1000))
local scores, n = {}, #ARGV / 2
for i = 1, n do scores[2 * i - 1], scores[2 * i] = now_text, ARGV[2 * i - 1] end
redis.call("ZADD", messages, unpack(scores))
redis.call("HSET", settings, unpack(ARGV))
redis.call("HINCRBY", settings, "totalsent", n)
return n
