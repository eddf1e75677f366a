-- Add stages of a bulk job to the list of one run, before the job may begin to publish.
--
--   KEYS[1]  hash  job
--   KEYS[2]  list  stages of this run, with their numbers of rows
--   KEYS[3..] zset and hash of each stage (at most 250 stages)
--   ARGV     seconds that list and stages live from now on; then per stage: name, rows
--
-- Returns how many were added; 0 when the job is published or being published already; minus the number of the first
-- stage that is missing or incomplete.
local job, list = KEYS[1], KEYS[2]
local state = redis.call("HGET", job, "state")
if state == "publishing" or state == "done" then return 0 end

local count = (#KEYS - 2) / 2
for n = 1, count do
  local stage, bodies, rows = KEYS[1 + 2 * n], KEYS[2 + 2 * n], tonumber(ARGV[1 + 2 * n])
  if redis.call("ZCARD", stage) ~= rows or redis.call("HLEN", bodies) ~= rows then return -n end
end
for n = 1, count do
  redis.call("EXPIRE", KEYS[1 + 2 * n], ARGV[1])
  redis.call("EXPIRE", KEYS[2 + 2 * n], ARGV[1])
  redis.call("RPUSH", list, ARGV[2 * n])
end
redis.call("EXPIRE", list, ARGV[1])
return count
