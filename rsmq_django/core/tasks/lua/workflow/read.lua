-- Read the state of workflows.
--
--   KEYS     hash  state of each (parts/state)
--   ARGV     length of the longest value that is read; names of the fields
--
-- Returns a list of fields and values for each, empty for a workflow that does not exist. Longer values are left out.
local longest, states = tonumber(ARGV[1]), {}
local names = {unpack(ARGV, 2)}
for n, key in ipairs(KEYS) do
  local values, found = redis.call("HMGET", key, unpack(names)), {}
  for at, name in ipairs(names) do
    local value = values[at]
    if value and #value <= longest then found[#found + 1], found[#found + 2] = name, value end
  end
  states[n] = found
end
return states
