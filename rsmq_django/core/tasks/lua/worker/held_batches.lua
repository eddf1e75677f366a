-- Read which batches of messages a worker has leased.
--
--   KEYS[1]  hash  messages leased by the worker (parts/strike)
--
-- Returns the fields, "{number of a fetch} {queue}", each once; the first 100,000, far more than a worker can have.
local holds = KEYS[1]
local batches, seen, cursor = {}, {}, "0"
for _ = 1, 100 do
  local page = redis.call("HSCAN", holds, cursor, "COUNT", 1000)
  cursor = page[1]
  for n = 1, #page[2], 2 do
    local batch = page[2][n]
    if batch:find("^%d+ .") and not seen[batch] then
      batches[#batches + 1], seen[batch] = batch, true
    end
  end
  if cursor == "0" then break end
end
return batches
