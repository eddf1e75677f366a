-- End a bulk job whose stages are empty.
--
--   KEYS[1]  hash  job
--   KEYS[2]  list  stages of the run that was published
--   KEYS[3]  set   jobs that began to publish and are not done
--   KEYS[4]  hash  an earlier job that cannot be repeated any more; may be absent
--   ARGV     name of the job; seconds that it is remembered
--
-- Returns rows that were staged, rows that were published. They differ only if a stage was damaged from outside; the
-- job then stays in the set, for an operator to check.
local job, list, publishing = KEYS[1], KEYS[2], KEYS[3]
local counts = redis.call("HMGET", job, "rows", "published")
if counts[1] == counts[2] then
  redis.call("HSET", job, "state", "done")
  redis.call("EXPIRE", job, ARGV[2])
  redis.call("SREM", publishing, ARGV[1])
  redis.call("DEL", list)
  if KEYS[4] then redis.call("DEL", KEYS[4]) end
end
return {tonumber(counts[1] or 0), tonumber(counts[2] or 0)}
