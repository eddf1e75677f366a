-- Read a slice of the failed members.
--
--   KEYS[1]  hash  failures (parts/state)
--   ARGV     cursor ("0" at first)
--
-- Returns the next cursor ("0" at the end), then number and failure (task id, a blank, JSON) in turn.
local page = redis.call("HSCAN", KEYS[1], ARGV[1], "COUNT", 100)
local reply = {page[1]}
for n, word in ipairs(page[2]) do reply[n + 1] = word end
return reply
