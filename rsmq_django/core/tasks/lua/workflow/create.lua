-- Begin a workflow, and list it among the newest.
--
--   KEYS[1]  hash  state (parts/state)
--   KEYS[2]  zset  workflow id -> time of its creation (ms)
--   KEYS[3..] hash  attributes of the queues for later steps and callbacks
--   ARGV     id; maximum number of listed workflows; ms to keep all keys after their last use; further fields and values of
--            the state
--
-- Returns the positions, from 0, of the queues that do not exist. Safe to repeat.
--#include parts/clock
local state, listed, id, cap, keep_ms = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local missing = {}
for n = 3, #KEYS do
  if redis.call("HEXISTS", KEYS[n], "vt") == 0 then missing[#missing + 1] = n - 3 end
end
if redis.call("EXISTS", state) == 1 then return missing end
local too_many = redis.call("ZRANGE", listed, 0, -cap)
if #too_many > 0 then redis.call("ZREM", listed, unpack(too_many)) end
redis.call("ZADD", listed, integer(now_ms), id)
redis.call("HSET", state, "status", "running", "sealed", "0", "sent", "0", "succeeded", "0", "failed", "0", "calls", "0",
  "calls_done", "0", "keep_ms", keep_ms, "created_ms", integer(now_ms), unpack(ARGV, 4))
redis.call("PEXPIRE", state, keep_ms)
return missing
