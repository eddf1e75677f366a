-- Remove a worker from the list: it has ended, or its messages have been recovered.
--
--   KEYS[1]  zset  worker id -> time of its last heartbeat (ms)
--   KEYS[2]  hash  optional: the record of its leases, to be deleted; an empty record does not exist
--   ARGV     worker id; ms without a heartbeat, if a live worker is to stay on the list
--
-- Returns 1, or 0 when it is alive.
--#include parts/clock
local workers, worker_id, timeout_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])
local heartbeat_ms = timeout_ms and tonumber(redis.call("ZSCORE", workers, worker_id) or nil)
if heartbeat_ms and heartbeat_ms > now_ms - timeout_ms then return 0 end
redis.call("ZREM", workers, worker_id)
if KEYS[2] then redis.call("UNLINK", KEYS[2]) end
return 1
