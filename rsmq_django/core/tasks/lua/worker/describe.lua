-- Store the record of a worker process for display, and read the last command to it.
--
--   KEYS[1]  hash    its record; expires
--   KEYS[2]  string  the last command to it, "word time": quiet, resume, restart or stop
--   KEYS[3]  string  a request for the stacks of its tasks
--   ARGV     seconds to keep the record; fields and values in turn
--
-- Returns the command and the request, "" for none. They stay until they expire: a lost reply loses neither.
--#include parts/clock
local record = KEYS[1]
local order = redis.call("GET", KEYS[2]) or ""
-- At the memory limit the record is not stored, but the command is still read.
redis.call("DEL", record)
redis.pcall("HSET", record, "described_ms", integer(now_ms), unpack(ARGV, 2))
redis.pcall("EXPIRE", record, ARGV[1])
return {order, redis.call("GET", KEYS[3]) or ""}
