-- Delete old messages of a topic: beyond its retention, or below an index. Messages that other clients have published
-- since are recorded, for seeks by time and the age limit.
--
--   KEYS     as of topic/publish
--   ARGV     prefix of message keys, topic, what to do: "retain", "below" <index> or "keep" <count>
--
-- Returns how many indexes were dropped, 1 when there is more to do, the lowest index that is kept.
-- Errors: TopicBroken <field> <value>.
--#include parts/clock
--#include topic/parts/index
--#include topic/parts/times
--#include topic/parts/append
--#include topic/parts/attach
--#include topic/parts/retain
--#include topic/parts/limits
local log = {
  index = KEYS[1], meta = KEYS[2], time = KEYS[3], wake = KEYS[4], headers = KEYS[5], keys = KEYS[6],
  latest = KEYS[7], stale = KEYS[8], tombstones = KEYS[9], groups = KEYS[10], prefix = ARGV[1], name = ARGV[2],
}
local action, number = ARGV[3], tonumber(ARGV[4])

local failure = open_log(log)
if failure then return failure end

local dropped, has_more
if action == "retain" then
  dropped, has_more = retain(log, 1)
else
  local to = action == "below" and number - 1 or log.last - number
  dropped = drop_up_to(log, to)
  has_more = log.first <= math.min(to, log.last)
  redis.call("HDEL", log.meta, "bytes", "weighed") -- counted again if there is a limit of bytes
end

local _, is_anew = end_of_log(log, index_of(redis.call("HGET", log.meta, "last")) or 0, 1)
if is_anew then forget_past(log) end
local noted = redis.call("HMGET", log.meta, "last", "slot")
local known = index_of(noted[1]) or 0
if log.last > known then note_end(log, noted[2], math.max(log.first, known + 1)) end
return {dropped, has_more and 1 or 0, log.first}
