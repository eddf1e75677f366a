-- Mark a workflow as complete: it ends when all registered members have ended.
--
--   KEYS     the keys of the workflow (parts/state) and of its targets (parts/sending)
--   ARGV     number of registered members; targets; further fields of the state and their values
--
-- Returns 1; 0 when the workflow does not exist, was cancelled, or has another number of members. Safe to repeat.
--#include parts/clock
--#include parts/counters
--#include parts/ids
--#include parts/units
--#include tasks/workflow/parts/state
--#include tasks/workflow/parts/sending
--#include tasks/workflow/parts/progress
name_keys(1)
local more = read_targets(7, 2)
local s = redis.call("HMGET", state, "sent", "status", "sealed")
if s[1] ~= ARGV[1] or s[2] == "cancelled" then return 0 end
if s[3] == "1" then return 1 end
redis.call("HSET", state, "sealed", "1", unpack(ARGV, more))
conclude()
return 1
