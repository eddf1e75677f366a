-- Scan a slice of a queue for the message of a task that keeps no result record: its id ends with the task's id.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   ARGV     cursor ("0" at first), task id
--
-- Returns the next cursor ("0" at the end) and the matching message ids.
local page = redis.call("ZSCAN", KEYS[1], ARGV[1], "COUNT", 500)
local reply = {page[1]}
for n = 1, #page[2], 2 do
  if page[2][n]:sub(-#ARGV[2]) == ARGV[2] then reply[#reply + 1] = page[2][n] end
end
return reply
