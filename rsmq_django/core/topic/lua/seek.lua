-- Move a group. Its messages in flight are forgotten: they are delivered again if they are after the new position.
--
--   KEYS[1..3]   last index, meta, time (topic/publish)
--   KEYS[4..10]  cursor, groups, own, pending, due, counts, consumers (topic/parts/group)
--   ARGV     group; kind: "replay", "earliest", "latest", "index" <next>, "shift" <by>, "time" <ms>, "ago" <ms>; its
--            value or ""; 1 to change nothing; 1 although consumers are live; how recently they were seen then (ms);
--            the expected next index, or "" for any: if the next index differs, nothing is changed
--
-- Returns the position before and after, the last index and the lowest that is kept, live consumers, messages held.
-- Errors: TopicBroken <field> <value>, GroupLive <consumers>, GroupMoved <next index that was seen> <next index>.
--#include parts/clock
--#include topic/parts/index
--#include topic/parts/group
--#include topic/parts/times
--#include topic/parts/slots
--#include topic/parts/target
local log = {index = KEYS[1], meta = KEYS[2], time = KEYS[3]}
local group = {
  cursor = KEYS[4], groups = KEYS[5], own = KEYS[6], pending = KEYS[7], due = KEYS[8], counts = KEYS[9],
  consumers = KEYS[10], name = ARGV[1],
}
local kind, value, is_preview, is_forced, live_ms = ARGV[2], ARGV[3], ARGV[4] == "1", ARGV[5] == "1", ARGV[6]
local seen = tonumber(ARGV[7])

local failure = open_log(log)
if failure then return failure end
local position, holds = position_now(group, log)
if seen and seen ~= position + 1 then
  return redis.error_reply("RSMQ GroupMoved " .. ARGV[7] .. " " .. position + 1)
end
local live = redis.call("ZCOUNT", group.consumers, integer(now_ms - live_ms), "+inf")
if live > 0 and not is_preview and not is_forced then return redis.error_reply("RSMQ GroupLive " .. live) end
local held = holds and redis.call("ZCARD", group.pending) or 0
local target = target_of(log, kind, value, position)
if not is_preview then
  forget_held(group)
  -- Plain clients replay in the same way: without a cursor, the next read starts at the oldest stored message.
  if kind == "replay" then redis.call("DEL", group.cursor) else move_cursor(group, target) end
  note_consumer(group, "")
end
return {position, target, log.last, log.first, live, held}
