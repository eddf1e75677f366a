-- Store the later steps and callbacks of a workflow.
--
--   KEYS     the keys of the workflow (parts/state)
--   ARGV     fields and values of the hash of steps in turn
--
-- Returns 1; 0 when the workflow does not exist any more.
--#include tasks/workflow/parts/state
name_keys(1)
local keep_ms = redis.call("HGET", state, "keep_ms")
if not keep_ms then return 0 end
redis.call("HSET", steps, unpack(ARGV))
keep_alive(keep_ms)
return 1
