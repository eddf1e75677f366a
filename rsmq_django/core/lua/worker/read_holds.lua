-- Read what a worker that is gone held.
--
--   KEYS[1]  hash  message id -> "receive count queue"
--   ARGV     cursor of HSCAN ("0" at first)
--
-- Returns the next cursor ("0" at the end), then id and value in turn.
local holds = KEYS[1]
local page = redis.call("HSCAN", holds, ARGV[1], "COUNT", 500)
table.insert(page[2], 1, page[1])
return page[2]
