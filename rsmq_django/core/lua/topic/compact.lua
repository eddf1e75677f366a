-- Remove messages whose key has a newer message, and tombstones (an empty body with a key) after a while.
--
--   KEYS     as of topic/publish
--   ARGV     prefix of message keys, age of tombstones that go (ms)
--
-- Returns how many messages were removed, 1 when there is more to do. Errors: TopicBroken <field> <value>.
--#include shared/clock
--#include topic/index
--#include topic/attach
local AT_ONCE = 500
local log = {
  index = KEYS[1], meta = KEYS[2], headers = KEYS[5], keys = KEYS[6], latest = KEYS[7], stale = KEYS[8],
  tombstones = KEYS[9], prefix = ARGV[1],
}
local failure = open_log(log)
if failure then return failure end

local doomed = redis.call("ZRANGE", log.stale, 0, AT_ONCE - 1)
local over = redis.call(
  "ZRANGEBYSCORE", log.tombstones, "-inf", integer(now_ms - ARGV[2]), "LIMIT", 0, AT_ONCE - #doomed)
for _, index in ipairs(over) do doomed[#doomed + 1] = index end
if #doomed > 0 then remove_messages(log, doomed) end
return {#doomed, #doomed == AT_ONCE and 1 or 0}
