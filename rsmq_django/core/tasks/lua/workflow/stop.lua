-- Cancel a workflow that has not ended: it accepts no more members, and sends neither further steps nor callbacks.
--
--   KEYS     the keys of the workflow (parts/state)
--
-- Returns 1 cancelled, 0 it has ended or does not exist.
--#include parts/clock
--#include tasks/workflow/parts/state
name_keys(1)
local status = redis.call("HGET", state, "status")
if status ~= "running" then return status == "cancelled" and 1 or 0 end
redis.call("DEL", steps) -- removal first, so that this works at the memory limit, too
redis.call("HSET", state, "status", "cancelled", "finished_ms", integer(now_ms))
redis.call("RPUSH", room, "1") -- wakes a sender that waits
keep_alive(redis.call("HGET", state, "keep_ms"))
return 1
