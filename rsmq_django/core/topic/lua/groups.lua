-- List the active groups of a topic, the longest idle one first: at most 1000, the maximum number of groups.
--
--   KEYS[1]  zset  groups, scored with when they were last seen (ms)
--
-- Returns the server's time (ms), then name and time of each.
--#include parts/clock
local reply = redis.call("ZRANGE", KEYS[1], 0, 999, "WITHSCORES")
table.insert(reply, 1, integer(now_ms))
return reply
