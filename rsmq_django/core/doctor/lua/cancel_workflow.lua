-- Cancel a workflow whose sender died before it had sent everything.
--
--   KEYS     the keys of the workflow (tasks/workflow/parts/state)
--   ARGV     for how many ms nothing must have happened to it; the same for a map
--
-- Returns 1; 0 when its sender has continued since, or it has ended.
--#include parts/clock
--#include tasks/workflow/parts/state
name_keys(1)
local s = redis.call("HMGET", state, "status", "sealed", "keep_ms", "kind")
if s[1] ~= "running" or s[2] ~= "0" then return 0 end
if (tonumber(s[3]) or 0) - redis.call("PTTL", state) < tonumber(s[4] == "map" and ARGV[2] or ARGV[1]) then return 0 end
redis.call("DEL", steps)
redis.call("HSET", state, "status", "cancelled", "finished_ms", integer(now_ms))
redis.call("RPUSH", room, "1") -- wakes a sender that still waits
keep_alive(s[3])
return 1
