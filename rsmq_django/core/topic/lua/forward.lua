-- Move the next messages of a group to an RSMQ queue on the same server, atomically: none is lost or duplicated. A
-- message longer than the queue allows goes to the dead-letter topic.
--
--   KEYS[1..20]      as of topic/lease
--   KEYS[21] zset    the queue: message id -> time it becomes visible (ms)
--   KEYS[22] hash    its attributes, counters, bodies
--   ARGV[1..6]       as of topic/read; then prefix of the message keys of the dead-letter topic, the beginning of the
--                    headers there, unit of the queue's delay, channel to publish on or "", a suffix for each message
--
-- Returns how many messages were moved, how many dead-lettered, indexes left, missed, holes, the last index; or 0 if
-- the queue does not exist. Errors: as of topic/read.
--#include parts/clock
--#include parts/ids
--#include parts/units
--#include topic/parts/index
--#include topic/parts/times
--#include topic/parts/append
--#include topic/parts/group
--#include topic/parts/locate
--#include topic/parts/collect
--#include topic/parts/held
--#include topic/parts/again
--#include topic/parts/bury
--#include topic/parts/enqueue
local log = {index = KEYS[1], meta = KEYS[2], headers = KEYS[3], keys = KEYS[4], prefix = ARGV[1]}
local group = {
  cursor = KEYS[5], groups = KEYS[6], own = KEYS[7], pending = KEYS[8], due = KEYS[9], counts = KEYS[10],
  consumers = KEYS[11], name = ARGV[2],
}
local dead_letters = {
  index = KEYS[12], meta = KEYS[13], time = KEYS[14], wake = KEYS[15], headers = KEYS[16], keys = KEYS[17],
  latest = KEYS[18], stale = KEYS[19], tombstones = KEYS[20], prefix = ARGV[7],
}
local queue = {messages = KEYS[21], settings = KEYS[22], delay_unit = ARGV[9], channel = ARGV[10], suffixes_from = 11}
local count, start, on_reset, consumer, origin = tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6], ARGV[8]

local attributes = redis.call("HMGET", queue.settings, "vt", "delay", "maxsize")
if not attributes[1] then return 0 end
redis.call("ZCARD", queue.messages) -- a key of the wrong type fails here, before the cursor moves
local failure = open_log(log)
if failure then return failure end
local before, skipped = locate(group, log, start, on_reset)
if not before then return skipped end

local from, bodies, n, position, holes = collect(log, before, count)
local fitting, dead = sorted_by_size(from, bodies, n, tonumber(attributes[3]) or -1)
local refusal = #dead > 0 and open_dead_letters(dead_letters)
if refusal then return refusal end
if position > before or skipped > 0 then settle_cursor(group, position, skipped) end
bury(group, log, dead_letters, origin, dead)
enqueue(queue, attributes[2], fitting)
if consumer ~= "" then note_consumer(group, consumer) end
return {#fitting, #dead, log.last - position, skipped, holes, log.last}
