-- Renew all leases that a worker's record says it holds. The record is read here, in the same step, so that a message
-- whose outcome has just been carried out is never hidden again.
--
--   KEYS[1]  hash  what the worker holds (shared/strike)
--   KEYS[2..]  per queue: zset message id -> time it becomes visible (ms); hash attributes, counters, bodies
--   ARGV     cursor of HSCAN ("0" at first); then per queue, in the order of KEYS: name, lease in ms
--
-- Returns the next cursor ("0" at the end) and how many leases were renewed.
--#include shared/clock
local holds, queues = KEYS[1], {}
for n = 2, #ARGV, 2 do
  queues[ARGV[n]] = {messages = KEYS[n], settings = KEYS[n + 1], visible_ms = integer(now_ms + ARGV[n + 1])}
end

local function renew(id, receive_count, queue)
  local score = redis.call("ZSCORE", queue.messages, id)
  if not score then return 0 end
  if redis.call("HGET", queue.settings, id .. ":rc") ~= receive_count then return 0 end
  redis.call("ZREM", queue.messages, id)
  -- A task may have asked for longer than a lease.
  redis.call("ZADD", queue.messages, integer(math.max(tonumber(score), queue.visible_ms)), id)
  return 1
end

-- Few at a time: a batch may have many messages.
local page = redis.call("HSCAN", holds, ARGV[1], "COUNT", 5)
local renewed, longest_ms = 0, 0
for n = 1, #page[2], 2 do
  local queue = queues[page[2][n]:match("^%d+ (.+)$")]
  if queue then
    for id, receive_count in page[2][n + 1]:gmatch("\n([^\n]+) (%d+)") do
      renewed = renewed + renew(id, receive_count, queue)
    end
  end
end
for n = 3, #ARGV, 2 do longest_ms = math.max(longest_ms, tonumber(ARGV[n])) end
redis.call("PEXPIRE", holds, integer(10 * longest_ms + 60000))
return {page[1], renewed}
