-- Claim the next step of a job whose state is stored in the page, so that each page can start one step only.
--
--   KEYS[1]  string  number of claimed steps; expires
--   ARGV     number of this step, from 0; expiry in ms
--
-- Returns 1, or 0 when the step was claimed before.
local key, step, ttl_ms = KEYS[1], ARGV[1], ARGV[2]

if (redis.call("GET", key) or "0") ~= step then return 0 end
redis.call("SET", key, string.format("%d", step + 1), "PX", ttl_ms)
return 1
