-- Renew all leases in a worker's record. The record is read here, in the same step, so that a message that has just been
-- settled is never hidden again.
--
--   KEYS[1]  hash  messages leased by the worker (parts/strike)
--   KEYS[2..]  per queue: zset message id -> time it becomes visible (ms); hash attributes, counters, bodies
--   ARGV     cursor of HSCAN ("0" at first); the shortest lease in ms; then per queue, in the order of KEYS: name, "s" or
--            "ms", the unit of its visibility timeout, and the lease in ms if the queue has none
--
-- Returns the next cursor ("0" at the end), and the shortest lease of these queues in ms.
-- A damaged queue is left out: the leases of the others are renewed.
--#include parts/clock
--#include parts/units
local holds, queues, longest_ms, shortest_ms = KEYS[1], {}, 0, nil
for n = 3, #ARGV, 3 do
  local messages, settings = KEYS[2 * n / 3], KEYS[2 * n / 3 + 1]
  local stored = redis.pcall("HGET", settings, "vt")
  local lease_ms = type(stored) == "string" and given_or_own_ms(ARGV[n + 1], stored) or tonumber(ARGV[n + 2])
  lease_ms = math.max(tonumber(ARGV[2]), lease_ms)
  longest_ms, shortest_ms = math.max(longest_ms, lease_ms), math.min(shortest_ms or lease_ms, lease_ms)
  queues[ARGV[n]] = {messages = messages, settings = settings, visible_ms = integer(now_ms + lease_ms)}
end

local function renew(id, receive_count, queue)
  local score = redis.pcall("ZSCORE", queue.messages, id)
  if type(score) ~= "string" then return end
  if redis.pcall("HGET", queue.settings, id .. ":rc") ~= receive_count then return end
  redis.call("ZREM", queue.messages, id)
  -- A task may have requested more time than a lease.
  redis.call("ZADD", queue.messages, integer(math.max(tonumber(score), queue.visible_ms)), id)
end

-- A few at a time: a batch may have many messages.
local page = redis.call("HSCAN", holds, ARGV[1], "COUNT", 5)
for n = 1, #page[2], 2 do
  local queue = queues[page[2][n]:match("^%d+ (.+)$")]
  if queue then
    for id, receive_count in page[2][n + 1]:gmatch("\n([^\n]+) (%d+)") do
      renew(id, receive_count, queue)
    end
  end
end
redis.call("PEXPIRE", holds, integer(10 * longest_ms + 60000))
return {page[1], shortest_ms or -1}
