-- Abort a run of a bulk job: from now on, nothing more is staged for it.
--
--   KEYS[1]  hash    job
--   KEYS[2]  string  exists when this run was aborted
--   ARGV     seconds that this is remembered
--
-- Returns 1; -1 when the job is being published, which needs its stages: nothing was changed.
local job, aborted = KEYS[1], KEYS[2]
if redis.call("HGET", job, "state") == "publishing" then return -1 end
redis.call("SET", aborted, "1", "EX", ARGV[1])
return 1
