-- Write a schedule, unless it has changed since the caller read it. A paused schedule stays paused.
--
--   KEYS[1]  zset  name -> next planned time (ms)
--   KEYS[2]  hash  name -> definition (JSON)
--   KEYS[3]  hash  "<field>:<name>" -> value of a field of a schedule
--   ARGV     name, definition that the caller has read ("": there was none), new definition, owner, next planned time; "1"
--            if an earlier planned time stays: it may be due, or another worker may have fired it and set the next one
--
-- Returns 1 done, 0 it has changed since the caller read it, -1 there are a thousand schedules already.
local LIMIT = 1000
local due, entries, state = KEYS[1], KEYS[2], KEYS[3]
local name, seen, definition, owner, next_ms, earlier_stays = unpack(ARGV)
local stored = redis.call("HGET", entries, name)
if (stored or "") ~= seen then return stored == definition and 1 or 0 end
if not stored and redis.call("HLEN", entries) >= LIMIT then return -1 end
redis.call("HSET", entries, name, definition)
redis.call("HSET", state, "owner:" .. name, owner)
if redis.call("HEXISTS", state, "paused:" .. name) == 0 then
  if earlier_stays == "1" then redis.call("ZADD", due, "LT", next_ms, name) else redis.call("ZADD", due, next_ms, name) end
end
return 1
