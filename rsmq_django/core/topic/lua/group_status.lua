-- Return the status of a group, without changes.
--
--   KEYS     as of topic/seek
--   ARGV     group; how recently a live consumer was seen (ms)
--
-- Returns 1 when the group exists, its position, the last index, the lowest that is kept, messages held, those of them
-- that are due again, missed and dead-lettered so far, live consumers, when it was last seen (ms or -1), the start of
-- the slot in which its next message was published (ms or -1), the server's time (ms).
-- Errors: TopicBroken <field> <value>.
--#include parts/clock
--#include topic/parts/index
--#include topic/parts/times
--#include topic/parts/slots
--#include topic/parts/target
local log = {index = KEYS[1], meta = KEYS[2], time = KEYS[3]}
local group = {
  cursor = KEYS[4], groups = KEYS[5], own = KEYS[6], pending = KEYS[7], due = KEYS[8], consumers = KEYS[10],
}
local name, live_ms = ARGV[1], ARGV[2]

local failure = open_log(log)
if failure then return failure end
local text = redis.call("GET", group.cursor)
if not index_of(text) then return broken("cursor", text) end
local seen_ms = tonumber(redis.call("ZSCORE", group.groups, name) or -1)
local totals = redis.call("HMGET", group.own, "skipped", "dead")
local position, holds = position_now(group, log)
local next_index = math.max(position + 1, log.first)
return {
  (text or seen_ms >= 0) and 1 or 0, position, log.last, log.first,
  holds and redis.call("ZCARD", group.pending) or 0,
  holds and redis.call("ZCOUNT", group.due, "-inf", integer(now_ms)) or 0,
  tonumber(totals[1]) or 0, tonumber(totals[2]) or 0,
  redis.call("ZCOUNT", group.consumers, integer(now_ms - live_ms), "+inf"), seen_ms,
  next_index <= log.last and slot_ms(log.time, next_index) or -1, now_ms,
}
