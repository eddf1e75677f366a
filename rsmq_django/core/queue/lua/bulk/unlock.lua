-- Release a lock, if it is the caller's.
--
--   KEYS[1]  string  token of the holder
--   ARGV     token
--
-- Returns 1 when it was, else 0.
if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call("DEL", KEYS[1])
