-- Read the queues from which a worker has leased messages.
--
--   KEYS[1]  hash  messages leased by the worker (parts/strike)
--
-- Returns the names, each once; from the first 100,000 fields, far more than a worker can have.
local holds = KEYS[1]
local names, seen, cursor = {}, {}, "0"
for _ = 1, 100 do
  local page = redis.call("HSCAN", holds, cursor, "COUNT", 1000)
  cursor = page[1]
  for n = 1, #page[2], 2 do
    local name = page[2][n]:match("^%d+ (.+)$")
    if name and not seen[name] then
      names[#names + 1], seen[name] = name, true
    end
  end
  if cursor == "0" then break end
end
return names
