-- Remove a schedule with all its fields, unless it has changed since the caller read it.
--
--   KEYS[1]  zset  name -> next planned time (ms)
--   KEYS[2]  hash  name -> definition (JSON)
--   KEYS[3]  hash  "<field>:<name>" -> value of a field of a schedule
--   ARGV     name, definition that the caller has read
--
-- Returns 1 done or gone already (the reply may have been lost), 0 it has changed since the caller read it.
local due, entries, state = KEYS[1], KEYS[2], KEYS[3]
local name = ARGV[1]
local stored = redis.call("HGET", entries, name)
if stored ~= ARGV[2] then return stored and 0 or 1 end
redis.call("ZREM", due, name)
redis.call("HDEL", entries, name)
for _, what in ipairs({"owner", "paused", "planned_ms", "fired_ms", "task_id", "fired", "skipped"}) do
  redis.call("HDEL", state, what .. ":" .. name)
end
return 1
