-- Enter tasks whose last successes are to be kept, as long as there is room. One that no worker has entered for a while
-- gives way: nothing is written to its stream any more.
--
--   KEYS[1]  zset  task -> when a worker last entered it (ms)
--   ARGV     at most how many tasks; milliseconds after which one gives way; the tasks (at most 1,000)
--
-- Returns for each task 1 when it is entered and 0 when there is no room, then the names that gave way: their streams are
-- to be removed (events/forget).
--#include shared/clock
local tasks, most, patience_ms = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local out, gone = {}, {}

local function make_room()
  if redis.call("ZCARD", tasks) < most then return true end
  local oldest = redis.call("ZRANGE", tasks, 0, 0, "WITHSCORES")
  if tonumber(oldest[2]) > now_ms - patience_ms then return false end
  redis.call("ZREM", tasks, oldest[1])
  gone[#gone + 1] = oldest[1]
  return true
end

for at = 3, #ARGV do
  local has_room = redis.call("ZSCORE", tasks, ARGV[at]) or make_room()
  if has_room then redis.call("ZADD", tasks, integer(now_ms), ARGV[at]) end
  out[#out + 1] = has_room and 1 or 0
end
for _, name in ipairs(gone) do out[#out + 1] = name end
return out
