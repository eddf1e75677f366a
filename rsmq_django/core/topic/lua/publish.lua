-- Append messages to a topic, in the order given, and delete old ones beyond its retention.
--
--   KEYS[1]  string  index of the last message
--   KEYS[2]  hash    what we know of the log: first, last, slot, settings
--   KEYS[3]  zset    first index of a time slot, scored with the slot's start (ms)
--   KEYS[4]  stream  one entry, whose id is the last index: what readers wait for
--   KEYS[5..9]       headers, keys, latest, stale, tombstones (topic/parts/attach)
--   KEYS[10] zset    groups, for a topic that keeps what a group has not read
--   ARGV     prefix of message keys, topic, count, that many bodies; then per message with a key or headers: its
--            place (1..count), key or "", headers or ""
--
-- Returns the first and the last new index. Errors: TopicBroken <field> <value>; nothing is stored then.
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
local count = math.min(tonumber(ARGV[3]), #ARGV - 3)

local failure = open_to_append(log, #ARGV > 3 + count)
if failure then return failure end

local before = append(log, ARGV, 4, count)
for at = 4 + count, #ARGV, 3 do
  local place = tonumber(ARGV[at])
  attach(log, before + place, ARGV[at + 1], ARGV[at + 2], ARGV[3 + place] == "")
end
retain(log, 100)
return {before + 1, before + count}
