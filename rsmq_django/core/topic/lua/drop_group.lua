-- Delete a group with its position. Later reads with its name create a new group.
--
--   KEYS[1..7]   cursor, groups, own, pending, due, counts, consumers (topic/parts/group)
--   ARGV     group; how long it must have been idle (ms), or "" for one without live consumers; how recently a live
--            consumer was seen (ms)
--
-- Returns 1, or 0 if the group does not exist or is not idle. Errors: GroupLive <consumers>.
--#include parts/clock
local groups, consumers = KEYS[2], KEYS[7]
local name, idle_ms, live_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local live = redis.call("ZCOUNT", consumers, integer(now_ms - live_ms), "+inf")
if idle_ms then
  local seen_ms = tonumber(redis.call("ZSCORE", groups, name))
  if not seen_ms or seen_ms > now_ms - idle_ms then return 0 end
elseif live > 0 then
  return redis.error_reply("RSMQ GroupLive " .. live)
end
local removed = redis.call("ZREM", groups, name) + redis.call("DEL", KEYS[1])
redis.call("UNLINK", unpack(KEYS, 3))
return removed > 0 and 1 or 0
