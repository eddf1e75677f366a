-- Cancel a task that has not finished: delete its message with its body, even in flight, and set its result to cancelled.
-- Of a member of a workflow, the call has the further keys and arguments of tasks/workflow/parts/member, and counts it as
-- failed.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> number of releases, crashes, history before a redrive
--   KEYS[4]  hash  result record
--   KEYS[5]  zset  id of a cancelled message -> time of the cancellation (ms)
--   KEYS[6]  hash  message id -> failure record of a dead letter in this queue
--   ARGV     message id; channel that informs workers; error (JSON) and body of the result; seconds to keep it, and
--            to remember that it was cancelled
--
-- A worker that runs the task is informed through the channel; if that fails, its next renewal does not find the message
-- and checks KEYS[5]. Returns 1 cancelled, 0 no such message in this queue.
--#include parts/clock
--#include parts/remove
--#include parts/announce_end
--#include queue/moves/parts/seen
local messages, settings, releases, result, cancelled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dead_records = KEYS[6]

local first, advance = 1, nil
if #KEYS > 6 then -- the id of the message may be "", of a damaged record
--#include tasks/workflow/parts/member
  advance = is_awaited() and member_failed
end

local id, channel, err, body, keep_s, remember_s = unpack(ARGV, first)

if not redis.call("ZSCORE", messages, id) then return 0 end
local receive_count = tonumber(redis.call("HGET", settings, id .. ":rc") or 0) or 0
local attempt = math.max(1, receive_count - (tonumber(redis.call("HGET", releases, id)) or 0))
redis.call("ZCARD", cancelled) -- a key of the wrong type fails here, before any removal

remove(messages, settings, {id})
redis.call("HDEL", releases, unpack(release_fields({id})))
redis.pcall("HDEL", dead_records, id)
if redis.call("EXISTS", result) == 1 then
  -- A failed attempt already has its error.
  if redis.call("HEXISTS", result, "error:" .. attempt) == 1 then attempt = attempt + 1 end
  redis.call("HSET", result, "status", "FAILED", "error:" .. attempt, err, "finished_ms", integer(now_ms), "body", body)
  redis.call("EXPIRE", result, keep_s)
  announce_end(result, redis.call("HGET", result, "awaited_by"))
end
local expired = redis.call("ZRANGEBYSCORE", cancelled, "-inf", integer(now_ms - remember_s * 1000), "LIMIT", 0, 100)
if #expired > 0 then redis.call("ZREM", cancelled, unpack(expired)) end
redis.call("ZADD", cancelled, integer(now_ms), id)
redis.call("EXPIRE", cancelled, remember_s)
-- A missing permission for the channel must not look like a failed cancellation.
redis.pcall("PUBLISH", channel, id)
if advance then advance(ARGV[3]) end
return 1
