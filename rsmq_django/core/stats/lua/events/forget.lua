-- Remove the streams of successes of tasks that are not registered.
--
--   KEYS[1]  zset  task -> when a worker last registered it (ms)
--   KEYS[2..] stream  the last successes of each task
--   ARGV     the tasks, in order
--
-- Returns how many were removed. The stream of a task that was registered meanwhile stays.
local removed = 0
for at, task in ipairs(ARGV) do
  if not redis.call("ZSCORE", KEYS[1], task) then removed = removed + redis.call("UNLINK", KEYS[at + 1]) end
end
return removed
