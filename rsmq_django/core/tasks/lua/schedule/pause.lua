-- Pause a schedule: it has no next time until it is resumed.
--
--   KEYS[1]  zset  name -> next planned time (ms)
--   KEYS[2]  hash  name -> definition (JSON)
--   KEYS[3]  hash  "<field>:<name>" -> value of a field of a schedule
--   ARGV     name
--
-- Returns 1 done, 0 no such schedule.
local due, entries, state, name = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
if redis.call("HEXISTS", entries, name) == 0 then return 0 end
redis.call("ZREM", due, name)
redis.call("HSET", state, "paused:" .. name, "1")
return 1
