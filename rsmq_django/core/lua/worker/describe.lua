-- Note what a worker process is and does, for people, and ask whether somebody gave it an order.
--
--   KEYS[1]  hash    its record; expires
--   KEYS[2]  string  the last order to it, "word time": quiet, resume, restart or stop
--   KEYS[3]  string  a request for the stacks of its tasks
--   ARGV     seconds to keep the record; fields and values in turn
--
-- Returns the order and the request, "" for none. They stay until they expire: a lost reply loses neither.
--#include shared/clock
local record = KEYS[1]
local order = redis.call("GET", KEYS[2]) or ""
-- At the memory limit the record is left out, and the order still heard.
redis.call("DEL", record)
redis.pcall("HSET", record, "described_ms", integer(now_ms), unpack(ARGV, 2))
redis.pcall("EXPIRE", record, ARGV[1])
return {order, redis.call("GET", KEYS[3]) or ""}
