-- Cancel a task that is stored in an outbox: no relay will send it, and its result is cancelled.
--
--   KEYS[1]  zset  task id -> time until which it is remembered as sent (ms); expires with the last of them
--   KEYS[2]  hash  result record
--   ARGV     task id; ms to remember that it must not be sent; queue name, error (JSON) and body of the result; seconds to
--            keep the result (0: none)
--
-- Returns 1 cancelled, 0 a relay has sent it.
--#include parts/clock
local remembered, result = KEYS[1], KEYS[2]
local task_id, memory_ms, queue, err, body, keep_s = unpack(ARGV)
redis.call("HLEN", result) -- a key of the wrong type fails here, before any write
if redis.call("ZSCORE", remembered, task_id) then return 0 end
redis.call("ZADD", remembered, integer(now_ms + memory_ms), task_id)
redis.call("PEXPIRE", remembered, memory_ms)
if keep_s ~= "0" then
  redis.call("HSET", result, "status", "FAILED", "queue", queue, "message", "", "error:1", err, "finished_ms", integer(now_ms),
    "body", body)
  redis.call("EXPIRE", result, keep_s)
end
return 1
