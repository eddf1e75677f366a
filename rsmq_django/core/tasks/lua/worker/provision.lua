-- Create missing queues, list all of them, and read their attributes.
--
--   KEYS[1]  set   names of all queues
--   KEYS[2..]  per queue: hash attributes, counters, bodies; zset message id -> time it becomes visible (ms)
--   ARGV     per queue: name; visibility timeout, delay and maximum size, which an existing queue keeps
--
-- Returns the three attributes of each queue as they are stored, or three times "" for a damaged queue.
--#include parts/clock
local FIELDS, stored = {"vt", "delay", "maxsize", "created", "modified"}, {}

-- Returns the attributes. Attributes that another client did not write are added, as in queue/create.
local function provide(settings, messages, name, values)
  local found, is_listed = redis.pcall("HMGET", settings, unpack(FIELDS)), redis.pcall("SISMEMBER", KEYS[1], name)
  local size = redis.pcall("ZCARD", messages)
  if found.err or type(is_listed) ~= "number" or type(size) ~= "number" then return {"", "", ""} end
  for at, field in ipairs(FIELDS) do
    if not found[at] then
      redis.call("HSETNX", settings, field, values[at])
      found[at] = values[at]
    end
  end
  if is_listed == 0 then redis.call("SADD", KEYS[1], name) end
  return found
end

for n = 1, #ARGV, 4 do
  local at = (n - 1) / 2 + 2
  local found = provide(KEYS[at], KEYS[at + 1], ARGV[n], {ARGV[n + 1], ARGV[n + 2], ARGV[n + 3], time[1], time[1]})
  for field = 1, 3 do stored[#stored + 1] = found[field] end
end
return stored
