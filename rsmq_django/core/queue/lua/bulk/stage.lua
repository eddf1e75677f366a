-- Store messages of a bulk job next to the queue, with their final ids. They cannot be received yet.
--
--   KEYS[1]  hash    job
--   KEYS[2]  string  exists when this run was aborted
--   KEYS[3]  set     every stage of all attempts of the job
--   KEYS[4]  zset    stage: final id -> time it becomes visible (ms)
--   KEYS[5]  hash    stage: final id -> body
--   KEYS[6]  hash    attributes of the queue; absent for a topic
--   ARGV     name of the stage; its time to live (s); time of the first message (us); then per message: suffix, delay
--            in ms or the unit of the queue's own delay, body
--
-- The ids are derived from the arguments, so that a repeated call has no further effect.
-- Returns how many messages were staged; -1 when the job is done, -2 when this run was aborted: nothing was staged, as
-- nothing would remove it. Errors: QueueNotFound, MessageTooLong <bytes> <limit>.
--#include parts/clock
--#include parts/ids
--#include parts/units
local job, aborted, stages, stage, bodies, settings = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local name, lives_s = ARGV[1], ARGV[2]
now_us = tonumber(ARGV[3])
if redis.call("HGET", job, "state") == "done" then return -1 end
if redis.call("EXISTS", aborted) == 1 then return -2 end

local max_size, own_delay = -1, nil
if settings then
  local stored = redis.call("HMGET", settings, "delay", "maxsize", "vt")
  if not stored[3] then return redis.error_reply("RSMQ QueueNotFound") end
  own_delay, max_size = stored[1], tonumber(stored[2]) or -1
end

local scores, values, n = {}, {}, 0
for at = 4, #ARGV, 3 do
  local suffix, delay, body = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if max_size >= 0 and #body > max_size then
    return redis.error_reply("RSMQ MessageTooLong " .. #body .. " " .. max_size)
  end
  local id = message_id(n, suffix)
  local delay_ms = given_or_own_ms(delay, own_delay) or 0
  scores[2 * n + 1], scores[2 * n + 2] = integer(math.floor(now_us / 1000) + delay_ms), id
  values[2 * n + 1], values[2 * n + 2] = id, body
  n = n + 1
end
redis.call("SADD", stages, name)
redis.call("ZADD", stage, unpack(scores))
redis.call("HSET", bodies, unpack(values))
for _, key in ipairs({stages, stage, bodies}) do redis.call("EXPIRE", key, lives_s) end
return n
