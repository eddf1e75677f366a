-- Read a slice of the numbers of members that have a result, or that have failed.
--
--   KEYS[1]  hash  results or failures (parts/state)
--   ARGV     cursor ("0" at first)
--
-- Returns the next cursor ("0" at the end) and numbers of members, maybe one of them twice. Other fields are left out.
local page = redis.call("HSCAN", KEYS[1], ARGV[1], "COUNT", 100)
local reply = {page[1]}
for n = 1, #page[2], 2 do
  local field = page[2][n]
  if #field <= 8 and (field == "0" or field:match("^[1-9]%d*$")) then reply[#reply + 1] = field end
end
return reply
