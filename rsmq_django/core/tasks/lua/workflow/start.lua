-- Create a workflow, send all of its members and seal it: all or nothing, in one step.
--
--   KEYS     the keys of the workflow (parts/state); zset workflow id -> time of its creation (ms); for each queue of
--            later steps and callbacks its hash of attributes; the keys of the batches (parts/batches)
--   ARGV     id; maximum number of listed workflows; ms to keep all keys after their last use; calls of all members,
--            later steps too; number of further fields of the state, fields and values; number of steps, fields and
--            values of these; number of the later queues, their names; then the batches (parts/batches)
--
-- Returns the names of the queues that do not exist; nothing was written if there is one. Safe to repeat.
-- Errors: MessageTooLong <bytes> <limit> <queue>; nothing was written then.
--#include parts/clock
--#include parts/counters
--#include parts/ids
--#include parts/units
--#include parts/note
--#include tasks/workflow/parts/state
--#include tasks/workflow/parts/batches
name_keys(1)
local listed, id, cap, keep_ms, calls = KEYS[7], ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
if redis.call("EXISTS", state) == 1 then return {} end -- an earlier call, whose reply was lost

local at, words = 5, {}
for part = 1, 3 do -- fields, steps, names
  local count = (part < 3 and 2 or 1) * tonumber(ARGV[at])
  words[part] = {unpack(ARGV, at + 1, at + count)}
  at = at + 1 + count
end
local fields, prepared, later = words[1], words[2], words[3]
local missing = {}
for n, name in ipairs(later) do
  if redis.call("HEXISTS", KEYS[7 + n], "vt") == 0 then missing[#missing + 1] = name end
end
local batches, expected, refusal = read_batches(8 + #later, at, missing)
if refusal or #missing > 0 then return refusal or missing end

redis.call("ZADD", listed, integer(now_ms), id) -- first, because a server at its memory limit refuses it
local too_many = redis.call("ZRANGE", listed, 0, -cap - 1)
if #too_many > 0 then redis.call("ZREM", listed, unpack(too_many)) end
redis.call("HSET", state, "status", "running", "sealed", "1", "sent", #expected / 2, "succeeded", "0", "failed", "0",
  "calls", calls, "calls_done", "0", "keep_ms", keep_ms, "created_ms", integer(now_ms), unpack(fields))
if #prepared > 0 then redis.call("HSET", steps, unpack(prepared)) end
redis.call("HSET", members, unpack(expected))
send_batches(batches)
keep_alive(keep_ms)
return {}
