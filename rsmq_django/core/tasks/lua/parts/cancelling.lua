-- Delete the message of a task that has not finished; keys and arguments are those of tasks/cancel.
--#include parts/clock
--#include parts/remove
--#include queue/moves/parts/seen
local messages, settings, releases, result, cancelled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dead_records = KEYS[6]

-- first: index in ARGV of the arguments. Returns the reply of tasks/cancel.
local function cancel(first)
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
  end
  local expired = redis.call("ZRANGEBYSCORE", cancelled, "-inf", integer(now_ms - remember_s * 1000), "LIMIT", 0, 100)
  if #expired > 0 then redis.call("ZREM", cancelled, unpack(expired)) end
  redis.call("ZADD", cancelled, integer(now_ms), id)
  redis.call("EXPIRE", cancelled, remember_s)
  -- A missing permission for the channel must not look like a failed cancellation.
  redis.pcall("PUBLISH", channel, id)
  return 1
end
