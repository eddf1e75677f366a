-- Return the status of a topic, without changes.
--
--   KEYS[1..3]   last index, meta, time (topic/publish)
--   KEYS[4]      zset of groups
--
-- Returns 1 when there is such a topic, the last index, the lowest that is kept, the last that we noted, start of the
-- oldest and the newest slot (ms or -1), number of groups, the server's time (ms), then the settings: max_count,
-- max_age_ms, max_bytes, wait_for_groups, group_ttl_ms, each -1 when it is not set.
-- Errors: TopicBroken <field> <value>.
--#include parts/clock
--#include topic/parts/index
local log = {index = KEYS[1], meta = KEYS[2]}
local slots, groups = KEYS[3], KEYS[4]

local failure = open_log(log)
if failure then return failure end
local stored = redis.call(
  "HMGET", log.meta, "last", "max_count", "max_age_ms", "max_bytes", "wait_for_groups", "group_ttl_ms")
for i = 1, 6 do stored[i] = tonumber(stored[i]) or -1 end
local oldest = redis.call("ZRANGE", slots, 0, 0, "WITHSCORES")[2]
local newest = redis.call("ZRANGE", slots, -1, -1, "WITHSCORES")[2]
return {
  redis.call("EXISTS", log.index, log.meta) > 0 and 1 or 0, log.last, log.first, stored[1],
  tonumber(oldest) or -1, tonumber(newest) or -1, redis.call("ZCARD", groups), now_ms,
  stored[2], stored[3], stored[4], stored[5], stored[6],
}
