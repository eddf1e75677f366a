-- Take a worker off the list: it has ended, or its messages have been given back.
--
--   KEYS[1]  zset  worker id -> time of its last heartbeat (ms)
--   KEYS[2]  hash  perhaps: what it held, to be deleted; an empty one is gone by itself
--   ARGV     worker id; ms without a heartbeat, if it is to be kept on the list when it lives after all
--
-- Returns 1, or 0 when it lives.
--#include shared/clock
local workers, worker_id, silence_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])
local heard_ms = silence_ms and tonumber(redis.call("ZSCORE", workers, worker_id) or nil)
if heard_ms and heard_ms > now_ms - silence_ms then return 0 end
redis.call("ZREM", workers, worker_id)
if KEYS[2] then redis.call("UNLINK", KEYS[2]) end
return 1
