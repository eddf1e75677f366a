-- Find the schedules that are due. Read-only.
--
--   KEYS[1]  zset  name -> next planned time (ms)
--   KEYS[2]  hash  name -> definition (JSON)
--   KEYS[3]  hash  "<field>:<name>" -> value of a field of a schedule
--   ARGV     owner
--
-- Returns the server's time (ms); "1" when this owner's schedules have been synced; the next time that is in the future, or
-- ""; then per schedule that is due: name, planned time, definition.
--#include parts/clock
local LIMIT = 1000
local due, entries, state = KEYS[1], KEYS[2], KEYS[3]
local now = integer(now_ms)
local coming = redis.call("ZRANGEBYSCORE", due, "(" .. now, "+inf", "WITHSCORES", "LIMIT", 0, 1)
local reply = {now, redis.call("HGET", state, "synced:" .. ARGV[1]) or "", coming[2] or ""}
local found = redis.call("ZRANGEBYSCORE", due, "(-inf", now, "WITHSCORES", "LIMIT", 0, LIMIT)
for at = 1, #found, 2 do
  local n = #reply
  reply[n + 1], reply[n + 2] = found[at], found[at + 1]
  reply[n + 3] = redis.call("HGET", entries, found[at]) or ""
end
return reply
