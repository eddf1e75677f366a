-- Register tasks whose last successes are kept, while there is space. A task that no worker has registered for a while is
-- removed: nothing is written to its stream any more.
--
--   KEYS[1]  zset  task -> when a worker last registered it (ms)
--   ARGV     maximum number of tasks; milliseconds after which a task is removed; the tasks (up to 1,000)
--
-- Returns for each task 1 when it is registered and 0 when there is no space, then the names of removed tasks: their
-- streams are to be removed (stats/events/forget).
--#include parts/clock
local tasks, most, expiry_ms = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local out, gone = {}, {}

local function make_room()
  if redis.call("ZCARD", tasks) < most then return true end
  local oldest = redis.call("ZRANGE", tasks, 0, 0, "WITHSCORES")
  if tonumber(oldest[2]) > now_ms - expiry_ms then return false end
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
