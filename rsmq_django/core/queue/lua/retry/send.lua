-- Redrive dead letters of a plan, each due one step after the one before it: queue/moves/redrive with a rate.
--
--   KEYS[1..7]  as in queue/moves/redrive
--   KEYS[8]  hash  the plan; KEYS[9] zset: "id target" of its messages that have not ended -> due (ms); KEYS[10] hash: id ->
--            score and failure record of its dead letter
--   KEYS[11..]  result records, as in queue/moves/redrive
--   ARGV     channel and name of the target; seconds to keep an unfinished result; seconds to keep the plan after its last
--            message is due; then per message as in queue/moves/redrive
--
-- Returns the reply of queue/moves/redrive; an empty list when the plan is not sending, or may not send this many more.
--#include queue/moves/parts/redriving
--#include parts/whole
local plan, open, records = KEYS[8], KEYS[9], KEYS[10]
local state, gap, next_due, limit, sent = unpack(redis.call("HMGET", plan, "state", "gap_ms", "next_ms", "limit", "sent"))
-- Any program may have written the numbers. Instead of a step that no plan has, it is a second.
local MAX_GAP_MS, MAX_MS = 1e6, 1e15
local gap_ms, next_ms, sent_before = tonumber(gap), tonumber(next_due), tonumber(whole(sent))
if not (gap_ms and gap_ms > 0 and gap_ms <= MAX_GAP_MS) then gap_ms = 1000 end
if not (next_ms and next_ms < MAX_MS) then next_ms = 0 end
local left = tonumber(limit) and limit - sent_before or math.huge
if state ~= "sending" or (#ARGV - 4) / 5 > left then return {} end

local due_ms, entries, kept = math.max(now_ms, next_ms), {}, {}
local reply = redrive(10, 4, function(old, id)
  local due = integer(due_ms)
  due_ms = due_ms + gap_ms
  entries[#entries + 1], entries[#entries + 2] = due, id .. " " .. ARGV[2]
  kept[#kept + 1] = id
  kept[#kept + 1] = redis.call("ZSCORE", messages, old) .. " " .. (redis.call("HGET", failures, old) or "")
  return due
end)
if #entries == 0 then return reply end
redis.call("ZADD", open, unpack(entries))
redis.call("HSET", records, unpack(kept))
redis.call("HSET", plan, "next_ms", string.format("%.3f", due_ms), "sent", integer(sent_before + #entries / 2))
local keep_s = math.ceil((due_ms - now_ms) / 1000) + ARGV[4]
for _, key in ipairs({plan, open, records}) do redis.call("EXPIRE", key, keep_s) end
return reply
