-- Register members that are about to be sent.
--
--   KEYS     the keys of the workflow (parts/state)
--   ARGV     number of the first member; calls of all of them together; task ids in the order of the members
--
-- Returns how many members have not ended, -1 when the workflow accepts none: it was cancelled, sealed or has expired.
-- Safe to repeat.
--#include tasks/workflow/parts/state
name_keys(1)
local first, calls, count = tonumber(ARGV[1]), ARGV[2], #ARGV - 2
local s = redis.call("HMGET", state, "sent", "status", "sealed", "keep_ms")
local sent = tonumber(s[1])
if sent == first and s[2] == "running" and s[3] == "0" then
  local waiting = {}
  for n = 1, count do waiting[2 * n - 1], waiting[2 * n] = first + n - 1, ARGV[n + 2] end
  redis.call("HSET", members, unpack(waiting))
  redis.call("HINCRBY", state, "calls", calls)
  redis.call("HSET", state, "sent", first + count)
  keep_alive(s[4])
elseif sent ~= first + count then
  return -1
end
return redis.call("HLEN", members)
