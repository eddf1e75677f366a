-- Lease messages until `visible_ms`, or remove them when it is nil (pop), and give each to the caller.
--   values: body, receive count, first receive of each id, as HMGET returned them
--   give(id, body, receive_count, first_received_ms): called for each, in order
-- The first write is a removal, so that receiving still works when the server is at its memory limit: that is asked
-- about before a script's first write only.
local function hold(messages, settings, ids, values, visible_ms, give)
  local now_text = integer(now_ms)
  local visible_text = visible_ms and integer(visible_ms)
  local scores, counts, c = {}, {}, 0
  for i, id in ipairs(ids) do
    local stored, first_received, receive_count = values[3 * i - 1], values[3 * i], "1"
    if stored then receive_count = string.format("%d", (tonumber(stored) or 0) + 1) end
    scores[2 * i - 1], scores[2 * i] = visible_text, id
    counts[c + 1], counts[c + 2], c = id .. ":rc", receive_count, c + 2
    if receive_count == "1" then
      first_received = first_received or now_text
      counts[c + 1], counts[c + 2], c = id .. ":fr", first_received, c + 2
    end
    give(id, values[3 * i - 2], receive_count, first_received or "")
  end
  if visible_ms then
    redis.call("ZREM", messages, ids[1])
    redis.call("ZADD", messages, unpack(scores))
    redis.call("HSET", settings, unpack(counts))
  else
    redis.call("ZREM", messages, unpack(ids))
    for _, id in ipairs(ids) do redis.call("HDEL", settings, id, id .. ":rc", id .. ":fr") end
  end
  raise_counter(settings, "totalrecv", #ids)
end
