-- Remove messages whose key has a newer message, and tombstones (an empty body with a key) after a while.
--
--   KEYS     as of topic/publish
--   ARGV     prefix of message keys, age of tombstones that go (ms)
--
-- Returns how many messages were removed, 1 when there is more to do. Errors: TopicBroken <field> <value>.
--#include parts/clock
--#include topic/parts/index
--#include topic/parts/attach
local AT_ONCE = 500
local log = {
  index = KEYS[1], meta = KEYS[2], headers = KEYS[5], keys = KEYS[6], latest = KEYS[7], stale = KEYS[8],
  tombstones = KEYS[9], prefix = ARGV[1],
}
local failure = open_log(log)
if failure then return failure end

local to_remove = redis.call("ZRANGE", log.stale, 0, AT_ONCE - 1)
local over = redis.call(
  "ZRANGEBYSCORE", log.tombstones, "-inf", integer(now_ms - ARGV[2]), "LIMIT", 0, AT_ONCE - #to_remove)
for _, index in ipairs(over) do
  if not redis.call("ZSCORE", log.stale, index) then to_remove[#to_remove + 1] = index end
end
local counted = redis.call("HMGET", log.meta, "bytes", "weighed")
log.bytes, log.weighed = tonumber(counted[1]), tonumber(counted[2]) or 0
if #to_remove > 0 then remove_messages(log, to_remove) end
if #to_remove > 0 and log.bytes then redis.call("HSET", log.meta, "bytes", log.bytes) end
return {#to_remove, #to_remove == AT_ONCE and 1 or 0}
