-- Mark a bulk job as publishing, which cannot be undone: store the run whose stages are published.
--
--   KEYS[1]  hash  job: state, run, rows, published
--   KEYS[2]  list  stages of this run
--   KEYS[3]  set   jobs that began to publish and are not done
--   ARGV     name of the job; name of this run; expected stages in the list; expected rows in them
--
-- Returns the state ("publishing", "done" or "incomplete": nothing was changed) and the run whose stages are published.
local job, list, publishing = KEYS[1], KEYS[2], KEYS[3]
local stored = redis.call("HMGET", job, "state", "run")
if stored[1] == "publishing" or stored[1] == "done" then return {stored[1], stored[2] or ""} end
if redis.call("LLEN", list) ~= tonumber(ARGV[3]) then return {"incomplete", ""} end

redis.call("PERSIST", list)
redis.call("SADD", publishing, ARGV[1])
redis.call("HSET", job, "state", "publishing", "run", ARGV[2], "rows", ARGV[4], "published", 0)
return {"publishing", ARGV[2]}
