-- Store the progress of a plan.
--
--   KEYS[1]  hash  the plan
--   ARGV     the required state, "" for any; fields and values
--
-- Returns 1, or 0 when it is in another state or does not exist: nothing was written.
local state = redis.call("HGET", KEYS[1], "state")
if not state or (ARGV[1] ~= "" and state ~= ARGV[1]) then return 0 end
redis.call("HSET", KEYS[1], unpack(ARGV, 2))
return 1
