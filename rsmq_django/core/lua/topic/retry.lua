-- Set when messages that a group holds are handed out again: at once, later, or after a longer time than before.
--
--   KEYS[1]  zset  what the group holds, scored with its index
--   KEYS[2]  zset  the same, scored with when it is handed out again (ms)
--   ARGV     ms from now; indexes (1..1000)
--
-- Returns how many of them were held.
--#include shared/clock
local pending, due = KEYS[1], KEYS[2]
local due_ms = integer(now_ms + ARGV[1])

local changed = 0
for at, score in ipairs(redis.call("ZMSCORE", pending, unpack(ARGV, 2))) do
  if score then
    -- Removing before adding: ZADD alone is refused when the server is at its memory limit.
    redis.call("ZREM", due, ARGV[at + 1])
    redis.call("ZADD", due, due_ms, ARGV[at + 1])
    changed = changed + 1
  end
end
return changed
