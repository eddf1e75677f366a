-- Read a slice of the members that have not ended.
--
--   KEYS[1]  hash  members (parts/state)
--   ARGV     cursor ("0" at first)
--
-- Returns the next cursor ("0" at the end) and ids of tasks.
local page = redis.call("HSCAN", KEYS[1], ARGV[1], "COUNT", 500)
local reply = {page[1]}
for n = 2, #page[2], 2 do reply[#reply + 1] = page[2][n] end
return reply
