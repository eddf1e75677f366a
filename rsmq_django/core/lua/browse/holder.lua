-- Ask which worker notes that it holds a message. Nothing is changed.
--
--   KEYS     hash per worker: what it holds (shared/strike)
--   ARGV     message id, receive count, name of the queue
--
-- Returns the place in KEYS of the first one that does, 0 for none.
local line, queue = "\n" .. ARGV[1] .. " " .. ARGV[2] .. "\n", " " .. ARGV[3]
for at = 1, #KEYS do
  local batches = redis.call("HGETALL", KEYS[at])
  for n = 1, #batches, 2 do
    if batches[n]:sub(-#queue) == queue and (batches[n + 1] .. "\n"):find(line, 1, true) then return at end
  end
end
return 0
