-- Read the next messages of a group and move its cursor after them: at most once.
--
--   KEYS[1]  string  index of the last message
--   KEYS[2]  hash    what we know of the log
--   KEYS[3], KEYS[4] headers, keys (topic/parts/attach)
--   KEYS[5]  string  the group's cursor
--   KEYS[6..11]      groups, own, pending, due, counts, consumers (topic/parts/group)
--   ARGV     prefix of message keys, group, how many (1..1000), where a new group starts and where one goes on whose
--            topic was deleted ("earliest", "latest", "error"), consumer or "" when it has just been noted
--
-- Returns the bodies (nil for a hole), then the keys and the headers if there are any; at the end the last index of the
-- log, how many messages the group missed, how many holes there were, how many indexes are left behind these, the index
-- of the first message, and how many bodies there are. Errors: TopicBroken <field> <value>, GroupNotFound, TopicReset <cursor> <last>.
--#include parts/clock
--#include topic/parts/index
--#include topic/parts/group
--#include topic/parts/locate
--#include topic/parts/collect
local log = {index = KEYS[1], meta = KEYS[2], headers = KEYS[3], keys = KEYS[4], prefix = ARGV[1]}
local group = {
  cursor = KEYS[5], groups = KEYS[6], own = KEYS[7], pending = KEYS[8], due = KEYS[9], counts = KEYS[10],
  consumers = KEYS[11], name = ARGV[2],
}
local count, start, on_reset, consumer = tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]

local failure = open_log(log)
if failure then return failure end
local before, skipped = locate(group, log, start, on_reset)
if not before then return skipped end

local from, bodies, n, position, holes = collect(log, before, count)
if position > before or skipped > 0 then settle_cursor(group, position, skipped) end
if consumer ~= "" then note_consumer(group, consumer) end

local reply = has_extras(log) and append_extras(bodies, log, numbers(from, n)) or bodies
for _, fact in ipairs({log.last, skipped, holes, log.last - position, from, n}) do reply[#reply + 1] = fact end
return reply
