-- Read whether messages were cancelled.
--
--   KEYS[1]  zset  id of a cancelled message -> time of the cancellation (ms)
--   ARGV     message ids
--
-- Returns 1 or 0 for each, in the order given.
local scores, flags = redis.call("ZMSCORE", KEYS[1], unpack(ARGV)), {}
for n = 1, #ARGV do flags[n] = scores[n] and 1 or 0 end
return flags
