-- Metadata of messages: headers (opaque) and a key; a newer message with the same key makes older ones stale.
--   keys: index -> key; latest: key -> index; stale: superseded indexes; tombstones: index, scored with its time (ms)
local function attach(log, index, key, headers, is_tombstone)
  if headers ~= "" then redis.call("HSET", log.headers, index, headers) end
  if key == "" then return end
  local older = redis.call("HGET", log.latest, key)
  if older and index_of(older) then redis.call("ZADD", log.stale, older, older) end
  redis.call("HSET", log.keys, index, key)
  redis.call("HSET", log.latest, key, index)
  if is_tombstone then redis.call("ZADD", log.tombstones, integer(now_ms), index) end
end

-- A key of another type is a hole, as it is for MGET.
local function size_of(key)
  local size = redis.pcall("STRLEN", key)
  return type(size) == "number" and size or 0
end

-- Delete messages with their metadata. `indexes` is at most 1000 numbers, not empty. Where bytes are counted (topic/retain),
-- those of the messages are taken from `log.bytes`.
local function remove_messages(log, indexes)
  local gone = {}
  for i, index in ipairs(indexes) do
    gone[i] = log.prefix .. index
    if log.bytes and tonumber(index) <= log.weighed then log.bytes = log.bytes - size_of(gone[i]) end
  end
  redis.call("UNLINK", unpack(gone))
  if redis.call("EXISTS", log.headers) == 1 then redis.call("HDEL", log.headers, unpack(indexes)) end
  if redis.call("EXISTS", log.keys) == 0 then return end
  local keys = redis.call("HMGET", log.keys, unpack(indexes))
  for i, key in ipairs(keys) do
    if key and redis.call("HGET", log.latest, key) == tostring(indexes[i]) then redis.call("HDEL", log.latest, key) end
  end
  redis.call("HDEL", log.keys, unpack(indexes))
  redis.call("ZREM", log.stale, unpack(indexes))
  redis.call("ZREM", log.tombstones, unpack(indexes))
end
