-- Set the next time of a schedule: when it is resumed, or because its current time is not valid.
--
--   KEYS[1]  zset  name -> next planned time (ms)
--   KEYS[2]  hash  name -> definition (JSON)
--   KEYS[3]  hash  "<field>:<name>" -> value of a field of a schedule
--   ARGV     name, definition that the caller has read, its next planned time ("": none), the new time
--
-- Returns 1 done, also by an earlier call whose reply was lost, 0 it is gone or has changed since the caller read it.
local due, entries, state = KEYS[1], KEYS[2], KEYS[3]
local name, definition, planned, next_ms = unpack(ARGV)
if redis.call("HGET", entries, name) ~= definition then return 0 end
local time_ms = tonumber(redis.call("ZSCORE", due, name) or "")
if time_ms ~= tonumber(planned) then return time_ms == tonumber(next_ms) and 1 or 0 end
redis.call("HDEL", state, "paused:" .. name)
redis.call("ZADD", due, next_ms, name)
return 1
