-- Record the outcome of messages of a plan, once for each message.
--
--   KEYS[1]  hash  the plan; KEYS[2] zset: "id target" -> due (ms); KEYS[3] hash: id -> score and failure record
--   KEYS[4]  zset  queue of the messages; KEYS[5] hash: failure records of the dead-letter queue
--   KEYS[6..]  hash  result record of each message that has one, in order
--   ARGV     name of the queue; then per message: id, 1 if it has a result record
--
-- Returns how many have ended.
local plan, open, records, messages, failures = unpack(KEYS, 1, 5)

-- A message that left its queue without a result was deleted, or its task keeps no result.
local function outcome_of(id, record)
  local status, message = unpack(record and redis.call("HMGET", record, "status", "message") or {})
  if status == "SUCCESSFUL" and message == id then return "succeeded" end
  local is_dead = redis.call("HEXISTS", failures, id) == 1
  if is_dead or (status == "FAILED" and message == id) then return "failed" end
  return "unknown"
end

local key, ended = 5, 0
for at = 2, #ARGV, 2 do
  local id, record = ARGV[at], nil
  if ARGV[at + 1] == "1" then
    key = key + 1
    record = KEYS[key]
  end
  if not redis.call("ZSCORE", messages, id) and redis.call("ZREM", open, id .. " " .. ARGV[1]) == 1 then
    local outcome = outcome_of(id, record)
    redis.call("HINCRBY", plan, outcome, 1)
    redis.call("HDEL", records, id)
    if outcome == "failed" then redis.call("HSET", plan, "failed_id", id) end
    ended = ended + 1
  end
end
return ended
