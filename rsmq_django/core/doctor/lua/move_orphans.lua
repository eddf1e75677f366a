-- Move bodies that belong to no message to a queue of their own, as messages that can be received. When source and
-- target are the same queue, they become messages of that queue.
--
--   KEYS[1], KEYS[2]  zset and hash of the queue
--   KEYS[3], KEYS[4]  zset and hash of the target
--   KEYS[5]           set  queue names
--   ARGV              name of the target; visibility timeout, delay and maximum size that it gets if it is new; ids
--
-- Returns how many were moved; a body that belongs to a message by now is left out.
--#include parts/clock
--#include parts/counters
local messages, settings, target, target_settings, queues = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local has_messages = redis.call("TYPE", messages).ok == "zset"
-- Keys of the wrong type fail here, before anything is written.
redis.call("ZCARD", target)
redis.call("HLEN", target_settings)

local function move(id)
  if has_messages and redis.call("ZSCORE", messages, id) then return 0 end
  local values = redis.call("HMGET", settings, id, id .. ":rc", id .. ":fr")
  if not values[1] then return 0 end
  -- Remove first: a server at its memory limit then accepts the other writes.
  redis.call("HDEL", settings, id, id .. ":rc", id .. ":fr")
  redis.call("ZADD", target, integer(now_ms), id)
  redis.call("HSET", target_settings, id, values[1])
  if values[2] then redis.call("HSET", target_settings, id .. ":rc", values[2]) end
  if values[3] then redis.call("HSET", target_settings, id .. ":fr", values[3]) end
  return 1
end

local moved = 0
for at = 5, #ARGV do moved = moved + move(ARGV[at]) end
if moved > 0 and target ~= messages then
  for i, field in ipairs({"vt", "delay", "maxsize"}) do redis.call("HSETNX", target_settings, field, ARGV[1 + i]) end
  redis.call("HSETNX", target_settings, "created", time[1])
  redis.call("HSETNX", target_settings, "modified", time[1])
  raise_counter(target_settings, "totalsent", moved)
  redis.call("SADD", queues, ARGV[1])
end
return moved
