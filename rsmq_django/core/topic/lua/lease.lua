-- Deliver messages of a group at least once, until they are acknowledged. Due redeliveries come first.
--
--   KEYS[1..11]      as of topic/read
--   KEYS[12..20]     the dead-letter topic: as KEYS[1..9] of topic/publish
--   ARGV[1..6]       as of topic/read; then visibility timeout (ms), most deliveries or 0, prefix of the message keys
--                    of the dead-letter topic, the beginning of the headers there, how many when one was tried before
--
-- Returns the last index, missed, holes, left behind these, dead-lettered, ms until something is due again or -1, the
-- number of messages, end of their receipts (topic/parts/receipts); then columns: indexes, deliveries ("2:1" when one of
-- two was released), bodies; keys and headers, if there are any. Errors: as of topic/read.
--#include parts/clock
--#include topic/parts/index
--#include topic/parts/times
--#include topic/parts/append
--#include topic/parts/group
--#include topic/parts/locate
--#include topic/parts/collect
--#include topic/parts/held
--#include topic/parts/again
--#include topic/parts/tried
--#include topic/parts/receipts
--#include topic/parts/bury
--#include topic/parts/columns
local log = {index = KEYS[1], meta = KEYS[2], headers = KEYS[3], keys = KEYS[4], prefix = ARGV[1]}
local group = {
  cursor = KEYS[5], groups = KEYS[6], own = KEYS[7], pending = KEYS[8], due = KEYS[9], counts = KEYS[10],
  consumers = KEYS[11], name = ARGV[2],
}
local dead_letters = {
  index = KEYS[12], meta = KEYS[13], time = KEYS[14], wake = KEYS[15], headers = KEYS[16], keys = KEYS[17],
  latest = KEYS[18], stale = KEYS[19], tombstones = KEYS[20], prefix = ARGV[9],
}
local count, start, on_reset, consumer = tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local visible_ms, most_deliveries, origin = now_ms + ARGV[7], tonumber(ARGV[8]), ARGV[10]

local failure = open_log(log)
if failure then return failure end
local before, skipped = locate(group, log, start, on_reset)
if not before then return skipped end

local letters, dead, gone = find_due(group, log, count, most_deliveries)
count = cut_tried(letters, count, tonumber(ARGV[11]))
local refusal = #dead > 0 and open_dead_letters(dead_letters)
if refusal then dead = {} end -- they stay unchanged, and do not block other messages
local from, bodies, n, position, holes = collect(log, before, count - #letters)
for i = 1, n do
  if bodies[i] then letters[#letters + 1] = {from + i - 1, bodies[i], 1, 0} end
end

if consumer ~= "" then note_consumer(group, consumer) end
if refusal and #letters == 0 then return refusal end
for _, index in ipairs(gone) do
  if index < log.first then skipped, holes = skipped + 1, holes - 1 end -- retention deleted it before it was acknowledged
end
let_go(group, gone)
bury(group, log, dead_letters, origin, dead)
hold(group, letters, visible_ms)
if position > before or skipped > 0 or #dead + #gone > 0 then settle_cursor(group, position, skipped) end

local left = log.last - position
return in_columns(
  {log.last, skipped, holes + #gone, left, #dead, ms_until_due(group), #letters, receipt_end(group)}, log, letters)
