-- Read the records of worker processes. Read-only.
--
--   KEYS     hash per process: its record (tasks/worker/describe)
--
-- Returns the server's time (ms), then per process the values of FIELDS; "" is absent.
--#include parts/clock
local FIELDS = {"described_ms", "host", "pid", "version", "age_ms", "memory_bytes", "state", "queues", "running",
  "reliable", "tasks", "slots"}
local out = {integer(now_ms)}
for at = 1, #KEYS do
  local values = redis.call("HMGET", KEYS[at], unpack(FIELDS))
  for n = 1, #FIELDS do out[#out + 1] = values[n] or "" end
end
return out
