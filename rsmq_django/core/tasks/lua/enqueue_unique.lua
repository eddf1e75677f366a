-- Put the call of a unique task on a queue, unless an equal call has its lock.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  lock: task, message and queue of the call that has it, first_ms, until_ms; tags of the
--            call (JSON); member: "1" for a member of a workflow, which waits for that call: no other one replaces it
--   KEYS[4]  hash  result record of this call
--   KEYS[5], KEYS[6], KEYS[7]  zset and hash of the holder's queue, and its result record; only in a second call
--   ARGV     delay in ms, or the unit of the queue's own delay; channel; seconds to keep an unfinished record (0: none);
--            queue name; task id; body; scope; mode; window in ms; longest wait in ms (0: none); ms that the lock is kept;
--            task id of the holder whose keys were given, or ""; "1" for a member of a workflow; tags (JSON), or ""
--
-- Returns "sent", the ids of task and message, and the task that it replaced with its tags, if there is one; "duplicate"
-- and the ids of the call that has the lock; or "look", task id and queue of that call: send again with its keys.
-- Errors: QueueNotFound, MessageTooLong, BrokenLock <key>; nothing is stored then.
--#include parts/clock
--#include parts/base36
--#include parts/units
--#include parts/raised
--#include parts/remove
--#include parts/note
--#include parts/store_one
--#include parts/announce_end
--#include tasks/parts/replace
local messages, settings, lock, result = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local delay, channel, record_ttl_s, queue, task = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local body, scope, mode, given_task = ARGV[6], ARGV[7], ARGV[8], ARGV[12]
local window_ms, max_wait_ms, lock_ttl_ms = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])

local held = redis.pcall("HMGET", lock, "task", "queue", "message", "first_ms", "until_ms", "member", "tags")
if held.err then return redis.error_reply("RSMQ BrokenLock " .. lock) end
local holder, holder_message, first_ms, is_waiting = held[1], held[3], now_ms, false
local until_ms = scope == "window" and now_ms + window_ms or 0

-- A lock without its other fields is from another program, and names no task.
if holder and held[2] and holder_message then
  if holder ~= given_task then return {"look", holder, held[2]} end
  local is_there = redis.call("ZSCORE", KEYS[5], holder_message)
  if holder == task and is_there then -- this call, sent a second time
    redis.call("HSET", lock, "task", task) -- a write: a caller that waits for replicas waits for the writes of this call
    return {"sent", task, holder_message}
  end
  is_waiting = is_there and redis.call("HEXISTS", KEYS[6], holder_message .. ":rc") == 0
  local is_in_window = scope == "window" and tonumber(held[5] or 0) > now_ms
  if is_in_window then until_ms = tonumber(held[5]) end -- the first call sets the window
  local is_duplicate = holder ~= task and ((scope == "running" and is_there) or is_in_window or is_waiting)
  if is_duplicate and not (is_waiting and mode ~= "reject" and not held[6]) then
    note(result, record_ttl_s, is_there or now_ms, "status", "DUPLICATE", "of", holder)
    if record_ttl_s == "0" then redis.call("HSET", lock, "task", holder) end -- a write, as above
    return {"duplicate", holder, holder_message}
  end
  if is_waiting then first_ms = tonumber(held[4]) or now_ms end
end
if mode == "debounce" then delay = window_ms end
if max_wait_ms > 0 then delay = math.max(0, math.min(delay, first_ms + max_wait_ms - now_ms)) end
local id, visible_ms = store_one(messages, settings, delay, channel, task, body)
if not visible_ms then return id end
if is_waiting then replace(KEYS[5], KEYS[6], KEYS[7], holder_message, record_ttl_s, visible_ms, task) end
local ends_ms = scope == "window" and until_ms or visible_ms + lock_ttl_ms
redis.call("DEL", lock)
redis.call("HSET", lock, "task", task, "queue", queue, "message", id, "first_ms", integer(first_ms), "until_ms", until_ms)
if ARGV[13] == "1" then redis.call("HSET", lock, "member", "1") end
if ARGV[14] and ARGV[14] ~= "" then redis.call("HSET", lock, "tags", ARGV[14]) end
redis.call("PEXPIRE", lock, integer(ends_ms - now_ms))
note(result, record_ttl_s, visible_ms, "status", "READY", "queue", queue, "message", id)
return {"sent", task, id, is_waiting and holder or nil, is_waiting and (held[7] or "") or nil}
