-- Remove stages that will not be published.
--
--   KEYS[1]  hash  job
--   KEYS[2]  set   every stage of all attempts of the job
--   KEYS[3..] zset and hash of each stage (at most 250 stages)
--   ARGV     names of the stages
--
-- Returns how many names were removed; -1 when the job is being published, which needs them.
local job, stages = KEYS[1], KEYS[2]
if redis.call("HGET", job, "state") == "publishing" then return -1 end
redis.call("UNLINK", unpack(KEYS, 3))
return redis.call("SREM", stages, unpack(ARGV))
