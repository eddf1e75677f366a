-- Take a lock, or keep one that is held.
--
--   KEYS[1]  string  token of the holder
--   ARGV     token; ms after which a silent holder loses it
--
-- Returns 1 when the lock is the caller's now, else 0.
local lock, token = KEYS[1], ARGV[1]
local holder = redis.call("GET", lock)
if holder and holder ~= token then return 0 end
-- A removal first: the archive must be able to run at the memory limit, because it makes room.
redis.call("DEL", lock)
redis.call("SET", lock, token, "PX", ARGV[2])
return 1
