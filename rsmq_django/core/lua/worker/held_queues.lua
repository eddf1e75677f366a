-- Read from which queues a worker holds messages.
--
--   KEYS[1]  hash  what the worker holds (shared/strike)
--
-- Returns the names, each once.
local names, seen, cursor = {}, {}, "0"
repeat
  local page = redis.call("HSCAN", KEYS[1], cursor, "COUNT", 1000)
  cursor = page[1]
  for n = 1, #page[2], 2 do
    local name = page[2][n]:match("^%d+ (.+)$")
    if name and not seen[name] then
      names[#names + 1], seen[name] = name, true
    end
  end
until cursor == "0"
return names
