-- Lease messages until `visible_ms`, or remove them when it is nil (pop).
--   found: ids, fields and values as hand_out.lua found them; the values become what they are from now on
-- The first write is a removal, so that receiving still works when the server is at its memory limit: that is asked
-- about before a script's first write only.
local function hold(messages, settings, found, visible_ms)
  local now_text, visible_text = integer(now_ms), visible_ms and integer(visible_ms)
  local ids, fields, values = found.ids, found.fields, found.values
  local scores, changed, c = {}, {}, 0
  for i = 1, #ids do
    local counted, first = 3 * i - 1, 3 * i
    local stored, receive_count = values[counted], "1"
    if stored then receive_count = string.format("%d", (tonumber(stored) or 0) + 1) end
    scores[2 * i - 1], scores[2 * i] = visible_text, ids[i]
    changed[c + 1], changed[c + 2], c = fields[counted], receive_count, c + 2
    if receive_count == "1" then
      values[first] = values[first] or now_text
      changed[c + 1], changed[c + 2], c = fields[first], values[first], c + 2
    end
    values[counted], values[first] = receive_count, values[first] or ""
  end
  if visible_ms then
    redis.call("ZREM", messages, ids[1])
    redis.call("ZADD", messages, unpack(scores))
    changed[c + 1], changed[c + 2] = "totalrecv", raised(redis.call("HGET", settings, "totalrecv"), #ids)
    redis.call("HSET", settings, unpack(changed))
  else
    redis.call("ZREM", messages, unpack(ids))
    redis.call("HDEL", settings, unpack(fields))
    raise_counter(settings, "totalrecv", #ids)
  end
end
