-- Read the visibility timeouts of many queues.
--
--   KEYS     per queue: hash attributes, counters, bodies
--
-- Returns them as they are stored; "" for a queue that is missing or damaged.
local stored = {}
for n, settings in ipairs(KEYS) do
  local reply = redis.pcall("HGET", settings, "vt")
  stored[n] = type(reply) == "string" and reply or ""
end
return stored
