-- Move messages to another queue unchanged: id, body, receive count, first receive, time they become visible, and our
-- additional data of them.
--
--   KEYS[1], KEYS[2]  zset and hash of the source; KEYS[3], KEYS[4] its failure records and releases
--   KEYS[5..8]        the same of the target
--   KEYS[9..]         hash  result record of each message, in order, if there is one
--   ARGV              channel and name of the target; then per message: id, receive count when it was read ("0": none)
--
-- Returns per message: 1 moved, 0 it is gone, -1 received since, -2 too long for the target, -3 the target has that id
-- already; or the number -1 when the target does not exist. Errors: QueueNotFound.
--#include queue/moves/parts/seen
--#include parts/counters
--#include parts/remove
local messages, settings, failures, releases = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local target, target_settings, target_failures, target_releases = KEYS[5], KEYS[6], KEYS[7], KEYS[8]

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end
local limit = redis.call("HMGET", target_settings, "maxsize", "vt")
if not limit[2] then return -1 end
local max_size = tonumber(limit[1]) or -1
redis.call("HLEN", target_failures) -- a key of the wrong type fails here, before any removal
redis.call("HLEN", target_releases)

local ids, receive_counts = receipts_from(3, 2)
local verdicts, scores = verdicts_since(messages, settings, ids, receive_counts)
local there = redis.call("ZMSCORE", target, unpack(ids))
local moved, places, fields, failed, released, records = {}, {}, {}, {}, {}, {}

-- Note field and value of one hash, so that all reads come before the first write.
local function take(from, field, into)
  local value = redis.call("HGET", from, field)
  if value then into[#into + 1], into[#into + 2] = field, value end
end

for n, id in ipairs(ids) do
  if verdicts[n] == 1 and redis.call("HEXISTS", settings, id) == 0 then verdicts[n] = 0 end
  if verdicts[n] == 1 and there[n] then verdicts[n] = -3 end
  if verdicts[n] == 1 and max_size >= 0 and redis.call("HSTRLEN", settings, id) > max_size then verdicts[n] = -2 end
  if verdicts[n] == 1 then
    moved[#moved + 1] = id
    if redis.pcall("HGET", KEYS[8 + n], "message") == id then records[#records + 1] = KEYS[8 + n] end
    places[#places + 1], places[#places + 2] = scores[n], id
    for _, suffix in ipairs({"", ":rc", ":fr"}) do take(settings, id .. suffix, fields) end
    take(failures, id, failed)
    for _, field in ipairs(release_fields({id})) do take(releases, field, released) end
  end
end
if #moved == 0 then return verdicts end

remove(messages, settings, moved)
redis.call("ZADD", target, unpack(places))
redis.call("HSET", target_settings, unpack(fields))
redis.call("HDEL", failures, unpack(moved))
redis.call("HDEL", releases, unpack(release_fields(moved)))
if #failed > 0 then redis.call("HSET", target_failures, unpack(failed)) end
if #released > 0 then redis.call("HSET", target_releases, unpack(released)) end
for _, record in ipairs(records) do redis.call("HSET", record, "queue", ARGV[2]) end
raise_counter(target_settings, "totalsent", #moved)
-- A missing permission for the channel must not look like a failed move.
redis.pcall("PUBLISH", ARGV[1], redis.call("ZCARD", target))
return verdicts
