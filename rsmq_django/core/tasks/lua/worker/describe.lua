-- Store the record of a worker process for display, and read the last command to it.
--
--   KEYS[1]  hash    its record; expires
--   KEYS[2]  string  the last command to it, "word time": quiet, resume, restart or stop
--   KEYS[3]  string  a request for the stacks of its tasks
--   ARGV     seconds to keep the record; 1 with the names of its queues, 0 to keep those that it has; fields and
--            values in turn
--
-- Returns the command and the request, "" for none, and 1 if there is no record with names to keep: then nothing was
-- stored. Command and request stay until they expire: a lost reply loses neither.
--#include parts/clock
local record, has_names = KEYS[1], ARGV[2] == "1"
local order, request = redis.call("GET", KEYS[2]) or "", redis.call("GET", KEYS[3]) or ""
if has_names then
  redis.call("DEL", record)
elseif redis.pcall("HEXISTS", record, "queues") ~= 1 then
  return {order, request, 1}
end
-- At the memory limit the record is not stored, but the command is still read.
local stored = redis.pcall("HSET", record, "described_ms", integer(now_ms), unpack(ARGV, 3))
if type(stored) == "table" then redis.call("DEL", record) end
redis.pcall("EXPIRE", record, ARGV[1])
return {order, request, 0}
