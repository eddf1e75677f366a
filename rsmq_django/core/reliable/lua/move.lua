-- Move messages to the end of another queue, with new ids and without deliveries.
--
--   KEYS   see parts/queue: the queue in which they are, and the other one
--   ARGV   their state: "undelivered", "delayed", "delivered" or "dead"; then up to 1,000 ids, for delivered and
--          dead ones receipts (parts/receipts)
--
-- Returns alternating old and new ids of the moved messages. Missing messages are skipped, and messages after ten
-- thousand others. Null: the source queue does not exist.
--#include parts/clock
--#include reliable/parts/queue
--#include reliable/parts/deliveries
--#include reliable/parts/receipts
--#include reliable/parts/joining
local MAX_DEPTH = 10000
local source, target, kind = queue_at(1), queue_at(2), ARGV[1]
if sizes_of(source).state == 0 then return false end
local sizes = sizes_of(target)
if not (kind == "undelivered" or kind == "delayed" or kind == "delivered" or kind == "dead") then
  return redis.error_reply("RSMQ InvalidArgument the kind must be undelivered, delayed, delivered or dead")
end
if source.state == target.state then return redis.error_reply("RSMQ InvalidArgument the target is the queue itself") end

local function is_there(id)
  if kind == "undelivered" then return redis.call("LPOS", source.undelivered, id, "MAXLEN", MAX_DEPTH) end
  return redis.call("ZSCORE", source[kind], id)
end

local function chosen()
  if kind == "delivered" or kind == "dead" then return (held_by_receipts(source, 2, source[kind])) end
  local ids, seen = {}, {}
  for at = 2, #ARGV do
    local id = ARGV[at]
    if not seen[id] and is_there(id) then
      seen[id] = true
      ids[#ids + 1] = id
    end
  end
  return ids
end

local ids, bodies = chosen(), {}
if #ids == 0 then return ids end
for n, body in ipairs(redis.call("HMGET", source.bodies, unpack(ids))) do bodies[n] = body or "" end
-- Removals first, so that this works at the memory limit, too.
for _, id in ipairs(ids) do
  if kind == "undelivered" then redis.call("LREM", source.undelivered, 1, id) else redis.call("ZREM", source[kind], id) end
end
redis.call("HDEL", source.bodies, unpack(ids))
redis.call("HDEL", source.history, unpack(ids))
announce(source)

local reply = {}
for n, id in ipairs(join(KEYS[1], target, sizes, bodies, 0)) do reply[2 * n - 1], reply[2 * n] = ids[n], id end
return reply
