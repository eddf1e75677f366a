-- Ask which worker notes that it holds a message. Nothing is changed.
--
--   KEYS     hash per worker  what it holds (shared/strike)
--   ARGV     message id, receive count, name of the queue
--
-- Returns the place in KEYS of the first one that does, 0 for none.
local line, queue = "\n" .. ARGV[1] .. " " .. ARGV[2] .. "\n", ARGV[3]

local function holds(key)
  for _, batch in ipairs(redis.call("HKEYS", key)) do
    if batch:match("^%d+ (.+)$") == queue and (redis.call("HGET", key, batch) .. "\n"):find(line, 1, true) then
      return true
    end
  end
  return false
end

for at = 1, #KEYS do
  if holds(KEYS[at]) then return at end
end
return 0
