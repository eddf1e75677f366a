-- Ask to be told, by a token in the list `room`, when few enough members are left.
--
--   KEYS     the keys of the workflow (parts/state)
--   ARGV     how few
--
-- Returns how many members are left now; -1 when the workflow takes none any more.
--#include workflow/parts/state
name_keys(1)
local left = redis.call("HLEN", members)
if redis.call("HGET", state, "status") ~= "running" then return -1 end
redis.call("DEL", room)
if left > tonumber(ARGV[1]) then redis.call("HSET", state, "low", ARGV[1]) end
return left
