-- Take a lock, or renew a lock of the caller.
--
--   KEYS[1]  string  token of the holder
--   ARGV     token; ms after which the lock expires without a renewal
--
-- Returns 1 when the caller has the lock now, else 0.
local lock, token = KEYS[1], ARGV[1]
local holder = redis.call("GET", lock)
if holder and holder ~= token then return 0 end
-- Removal first: the archive must be able to run at the memory limit, because it frees memory.
redis.call("DEL", lock)
redis.call("SET", lock, token, "PX", ARGV[2])
return 1
