-- Read the state of workflows.
--
--   KEYS     hash  state of each (parts/state)
--
-- Returns a list of fields and values for each, empty for one that is gone.
local states = {}
for n, key in ipairs(KEYS) do states[n] = redis.call("HGETALL", key) end
return states
