-- Find the worker whose record contains a message. Read-only.
--
--   KEYS     hash per worker: messages leased by it (parts/strike)
--   ARGV     message id, receive count, name of the queue
--
-- Returns the position in KEYS of the first such worker, 0 for none.
local line, queue = "\n" .. ARGV[1] .. " " .. ARGV[2] .. "\n", " " .. ARGV[3]
for at = 1, #KEYS do
  local batches = redis.call("HGETALL", KEYS[at])
  for n = 1, #batches, 2 do
    if batches[n]:sub(-#queue) == queue and (batches[n + 1] .. "\n"):find(line, 1, true) then return at end
  end
end
return 0
