-- Renew the leases of some batches in a worker's record. The record is read here, in the same step, so that a message that
-- has just been settled is never hidden again.
--
--   KEYS[1]  hash  messages leased by the worker (parts/strike)
--   KEYS[2..]  per queue: zset message id -> time it becomes visible (ms); hash attributes, counters, bodies
--   ARGV     number of queues; the shortest lease in ms; then per queue, in the order of KEYS: name, "s" or "ms", the unit
--            of its visibility timeout, and the lease in ms if the queue has none; then the batches, as held_batches has
--            them
--
-- Returns the shortest lease of these queues in ms.
-- A damaged queue is left out: the leases of the others are renewed.
--#include parts/clock
--#include parts/units
local holds, queues, longest_ms, shortest_ms = KEYS[1], {}, 0, nil
local behind = 3 * tonumber(ARGV[1])
for n = 3, behind, 3 do
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

for n = behind + 3, #ARGV do
  local queue = queues[ARGV[n]:match("^%d+ (.+)$")]
  for id, receive_count in (queue and redis.call("HGET", holds, ARGV[n]) or ""):gmatch("\n([^\n]+) (%d+)") do
    renew(id, receive_count, queue)
  end
end
-- Batches of other calls may have longer leases.
local keep_ms = 10 * longest_ms + 60000
if redis.call("PTTL", holds) < keep_ms then redis.call("PEXPIRE", holds, integer(keep_ms)) end
return shortest_ms or -1
