-- Fire ticks of a schedule: move its next time and put its task messages on their queue, in one step. Only the first caller
-- does it; all others find another planned time.
--
--   KEYS[1]  zset  name -> next planned time (ms)
--   KEYS[2]  hash  name -> definition (JSON)
--   KEYS[3]  hash  "<field>:<name>" -> value of a field of a schedule
--   KEYS[4]  zset  of the queue: message id -> time it becomes visible (ms)
--   KEYS[5]  hash  of the queue: attributes, counters, bodies
--   KEYS[6..] zset  of each tag of the task: task id -> time at which it expires (ms); then hash: result record of each
--            message, in order, none when no results are kept
--   ARGV     name, definition, planned time, next time, how many ticks are skipped, planned time of the last tick that
--            fires; delay in ms, channel, seconds that an unfinished record is kept, queue name; number of tags, ms to keep
--            task ids in them; then per message: suffix, body
--
-- Returns 1 done, 0 another worker has done it or the schedule changed. Errors: QueueNotFound, MessageTooLong <bytes>
-- <limit>; nothing was changed then.
--#include parts/clock
--#include parts/ids
--#include parts/units
--#include parts/counters
--#include parts/note
--#include parts/store
--#include tasks/parts/tagging
local due, entries, state = KEYS[1], KEYS[2], KEYS[3]
local name, definition, planned, next_ms, skipped, last_ms = unpack(ARGV, 1, 6)
local score = redis.call("ZSCORE", due, name)
-- Another program may have written a fraction, which the caller does not see.
if not score or math.floor(tonumber(score)) ~= tonumber(planned) then return 0 end
if redis.call("HGET", entries, name) ~= definition then return 0 end

local tags = {unpack(KEYS, 6, 5 + ARGV[11])}
for _, tag in ipairs(tags) do redis.call("ZCARD", tag) end -- a key of the wrong type fails here, before any write

if #ARGV > 12 then
  local ids, visible_ms = store(KEYS[4], KEYS[5], ARGV[7], ARGV[8], 13)
  if ids.err then return ids end
  for n = 6 + #tags, #KEYS do
    note(KEYS[n], ARGV[9], visible_ms, "status", "READY", "queue", ARGV[10], "message", ids[n - 5 - #tags])
  end
  add_to_tags(tags, tonumber(ARGV[12]), 13, 2)
  redis.call("HSET", state, "planned_ms:" .. name, last_ms, "fired_ms:" .. name, integer(now_ms),
    "task_id:" .. name, ARGV[#ARGV - 1])
  raise_counter(state, "fired:" .. name, #ids)
end
if skipped ~= "0" then raise_counter(state, "skipped:" .. name, skipped) end
redis.call("ZADD", due, next_ms, name)
return 1
