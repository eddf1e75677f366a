-- Request a token in the list `room` when the number of unfinished members is low enough.
--
--   KEYS     the keys of the workflow (parts/state)
--   ARGV     that number
--
-- Returns the number of unfinished members; -1 when the workflow accepts no more members.
--#include tasks/workflow/parts/state
name_keys(1)
local left = redis.call("HLEN", members)
if redis.call("HGET", state, "status") ~= "running" then return -1 end
redis.call("DEL", room)
if left > tonumber(ARGV[1]) then redis.call("HSET", state, "low", ARGV[1]) end
return left
