-- Renew all leases that a worker's record says it holds. The record is read here, in the same step, so that a message
-- whose outcome has just been carried out is never hidden again.
--
--   KEYS[1]  hash  what the worker holds: message id -> "receive count queue"
--   KEYS[2..]  per queue: zset message id -> time it becomes visible (ms); hash attributes, counters, bodies
--   ARGV     cursor of HSCAN ("0" at first); then per queue, in the order of KEYS: name, lease in ms
--
-- Returns the next cursor ("0" at the end) and the ids that turned out to be lost; they leave the record.
--#include shared/clock
local holds, queues = KEYS[1], {}
for n = 2, #ARGV, 2 do
  queues[ARGV[n]] = {messages = KEYS[n], settings = KEYS[n + 1], visible_ms = integer(now_ms + ARGV[n + 1])}
end

local function renew(id, receive_count, queue)
  if not redis.call("ZSCORE", queue.messages, id) then return false end
  if redis.call("HGET", queue.settings, id .. ":rc") ~= receive_count then return false end
  redis.call("ZREM", queue.messages, id)
  redis.call("ZADD", queue.messages, queue.visible_ms, id)
  return true
end

local page = redis.call("HSCAN", holds, ARGV[1], "COUNT", 500)
local reply, longest_ms = {page[1]}, 0
for n = 1, #page[2], 2 do
  local id, receive_count, name = page[2][n], page[2][n + 1]:match("^(%d+) (.+)$")
  local queue = queues[name]
  if queue and not renew(id, receive_count, queue) then
    redis.call("HDEL", holds, id)
    reply[#reply + 1] = id
  end
end
for n = 3, #ARGV, 2 do longest_ms = math.max(longest_ms, tonumber(ARGV[n])) end
redis.call("PEXPIRE", holds, integer(10 * longest_ms + 60000))
return reply
