-- Return messages of a plan that are not due yet to the dead-letter queue, with their previous failure records.
--
--   KEYS[1]  hash  the plan; KEYS[2] zset: "id target" -> due (ms); KEYS[3] hash: id -> score and failure record
--   KEYS[4..7]  of the dead-letter queue: zset, hash, failure records, releases
--   KEYS[8..10]  zset, hash and releases of the queue of the messages
--   KEYS[11..]  hash  result record of each message that has one, in order
--   ARGV     name of the queue; then per message: id, time of its failure (ms, "" for none), 1 if it has a result record
--
-- A message that was received, moved or rescheduled meanwhile stays. Returns how many are dead letters again.
-- Errors: QueueNotFound.
--#include parts/clock
--#include parts/counters
--#include parts/remove
--#include parts/announce_end
--#include queue/moves/parts/seen
local plan, open, records, dead, dead_settings, failures, dead_releases, messages, settings, releases = unpack(KEYS, 1, 10)
if redis.call("HEXISTS", dead_settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end
redis.call("ZCARD", dead) -- a key of the wrong type fails here, before any removal
for _, hash in ipairs({failures, dead_releases, releases}) do redis.call("HLEN", hash) end

-- Restore the result of a task that failed.
local function restore_failure(record, id, died_ms)
  if redis.call("HGET", record, "message") ~= id then return end
  redis.call("HSET", record, "status", "FAILED")
  if died_ms ~= "" then redis.call("HSET", record, "finished_ms", died_ms) end
  announce_end(record, redis.call("HGET", record, "awaited_by"))
end

local key, returned = 10, 0
for at = 2, #ARGV, 3 do
  local id, entry = ARGV[at], ARGV[at] .. " " .. ARGV[1]
  if ARGV[at + 2] == "1" then key = key + 1 end
  local due, kept = redis.call("ZSCORE", open, entry), redis.call("HGET", records, id)
  if due and kept and tonumber(due) > now_ms and redis.call("ZSCORE", messages, id) == due then
    local values = redis.call("HMGET", settings, id, id .. ":rc", id .. ":fr")
    local score, record = kept:match("^(%S+) (.*)$")
    remove(messages, settings, {id})
    redis.call("HDEL", releases, unpack(release_fields({id})))
    redis.call("ZADD", dead, score, id)
    redis.call("HSET", dead_settings, id, values[1] or "")
    if values[2] then
      redis.call("HSET", dead_settings, id .. ":rc", values[2])
      redis.call("HSET", dead_releases, id, values[2])
    end
    if values[3] then redis.call("HSET", dead_settings, id .. ":fr", values[3]) end
    if record ~= "" then redis.call("HSET", failures, id, record) end
    if ARGV[at + 2] == "1" then restore_failure(KEYS[key], id, ARGV[at + 1]) end
    redis.call("ZREM", open, entry)
    redis.call("HDEL", records, id)
    returned = returned + 1
  end
end
if returned > 0 then
  raise_counter(dead_settings, "totalsent", returned)
  redis.call("HINCRBY", plan, "returned", returned)
end
return returned
