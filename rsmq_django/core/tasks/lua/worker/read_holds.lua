-- Read the record of leases of a worker that does not exist any more.
--
--   KEYS[1]  hash  messages leased by the worker (parts/strike)
--   ARGV     cursor of HSCAN ("0" at first)
--
-- Returns the next cursor ("0" at the end), then batch and messages in turn.
local holds = KEYS[1]
local page = redis.call("HSCAN", holds, ARGV[1], "COUNT", 50)
table.insert(page[2], 1, page[1])
return page[2]
