-- Read all schedules.
--
--   KEYS[1]  zset  name -> next planned time (ms), of schedules that are not paused
--   KEYS[2]  hash  name -> definition (JSON)
--   KEYS[3]  hash  "<field>:<name>" -> value of a field of a schedule
--
-- Returns the server's time (ms), then per schedule: name, definition, and "" or: next planned time, owner, "1" when paused,
-- planned time of the last tick, when it fired (ms), its task id, how many fired, how many were skipped.
--#include parts/clock
local LIMIT = 1000
local due, entries, state = KEYS[1], KEYS[2], KEYS[3]
local stored = redis.call("HGETALL", entries)
local reply = {integer(now_ms)}
for at = 1, math.min(#stored, 2 * LIMIT), 2 do
  local name = stored[at]
  local known = redis.call("HMGET", state, "owner:" .. name, "paused:" .. name, "planned_ms:" .. name,
    "fired_ms:" .. name, "task_id:" .. name, "fired:" .. name, "skipped:" .. name)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = name, stored[at + 1], redis.call("ZSCORE", due, name) or ""
  for i = 1, 7 do reply[n + 3 + i] = known[i] or "" end
end
return reply
