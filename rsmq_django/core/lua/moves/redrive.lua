-- Send dead letters again as new messages, and remove them and their failure records, in one step.
--
--   KEYS[1..4]  of the dead-letter queue: zset, hash, failure records, releases
--   KEYS[5..7]  zset, hash and releases of the target
--   KEYS[8..]   hash  result record of each message that names one, in order
--   ARGV        channel and name of the target; seconds to keep a result that is awaited again; then per message: id,
--               receive count when it was looked at ("0": none), suffix of the new id, 1 if it has a result record, and
--               its lives so far (JSON, "" for none)
--
-- A new id, because an old receipt must never fit again; the body stays, and with it the task's id. One with earlier lives
-- begins with a receive count of 1 that counts as given back unused, so that whoever ends it sees what to remove.
--
-- Returns per message: its new id, or 0 it is gone, -1 received since, -2 too long for the target; or just -1: no such
-- target. Safe to repeat: what was sent again is gone. Errors: QueueNotFound.
--#include shared/clock
--#include shared/counters
--#include shared/ids
--#include shared/remove
--#include moves/seen
--#include moves/earlier_attempts
local messages, settings, failures, releases, target, target_settings, target_releases = unpack(KEYS, 1, 7)

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end
local limit = redis.call("HMGET", target_settings, "maxsize", "vt")
if not limit[2] then return -1 end
local max_size = tonumber(limit[1]) or -1
redis.call("ZCARD", target) -- a key of another type fails here, before anything was removed
redis.call("HLEN", target_releases)

local ids, receive_counts = receipts_from(4, 5)
local reply = verdicts_since(messages, settings, ids, receive_counts)
local gone, places, bodies, past, awaited, key = {}, {}, {}, {}, {}, 7
for n, id in ipairs(ids) do
  local has_result = ARGV[5 * n + 2] == "1"
  if has_result then key = key + 1 end
  local body = reply[n] == 1 and redis.call("HGET", settings, id)
  if reply[n] == 1 and not body then reply[n] = 0 end
  if body and max_size >= 0 and #body > max_size then reply[n] = -2 end
  if reply[n] == 1 then
    reply[n] = message_id(n, ARGV[5 * n + 1])
    gone[#gone + 1] = id
    places[#places + 1], places[#places + 2] = integer(now_ms), reply[n]
    bodies[#bodies + 1], bodies[#bodies + 2] = reply[n], body
    carry_past(reply[n], ARGV[5 * n + 3], redis.call("HGET", settings, id .. ":fr"), bodies, past)
    if has_result then awaited[KEYS[key]] = reply[n] end
  end
end
if #gone == 0 then return reply end

remove(messages, settings, gone)
redis.call("ZADD", target, unpack(places))
redis.call("HSET", target_settings, unpack(bodies))
if #past > 0 then redis.call("HSET", target_releases, unpack(past)) end
redis.call("HDEL", failures, unpack(gone))
redis.call("HDEL", releases, unpack(release_fields(gone)))
for record, id in pairs(awaited) do await_again(record, ARGV[2], id, ARGV[3]) end
raise_counter(target_settings, "totalsent", #gone)
-- A channel that this user may not use must not make it look as if nothing had been sent.
redis.pcall("PUBLISH", ARGV[1], redis.call("ZCARD", target))
return reply
