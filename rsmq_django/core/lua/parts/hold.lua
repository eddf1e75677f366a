-- Lease or remove the messages that were found.
--#include parts/remove
-- Set in `found` the new receive counts and times of first receive: receive_counts and first_receives (ms or ""). Returns the
-- fields and values that change in the queue's hash.
--   found: ids, fields and values as in find_ready() (parts/ready)
local function count_receives(settings, found)
  local now_text, ids, fields, values = integer(now_ms), found.ids, found.fields, found.values
  local counts, firsts, changed, c, again, again_fields = {}, {}, {}, 0, {}, {}
  for i = 1, #ids do
    local stored = values[2 * i]
    changed[c + 1] = fields[2 * i]
    if stored then
      counts[i] = raised(stored, 1) -- it must increase: it distinguishes leases
      c = c + 2
      changed[c] = counts[i]
      again[#again + 1], again_fields[#again + 1] = i, ids[i] .. ":fr"
    else
      counts[i] = "1"
      firsts[i] = now_text
      changed[c + 2] = "1"
      changed[c + 3] = ids[i] .. ":fr"
      c = c + 4
      changed[c] = now_text
    end
  end
  local before = #again > 0 and redis.call("HMGET", settings, unpack(again_fields))
  for k, i in ipairs(again) do -- only these have been received before
    firsts[i] = before[k] or counts[i] == "1" and now_text or ""
    if not before[k] and counts[i] == "1" then
      changed[c + 1], changed[c + 2], c = again_fields[k], now_text, c + 2
    end
  end
  found.receive_counts, found.first_receives = counts, firsts
  return changed
end

-- Lease the found messages until `visible_ms`, or remove them when that is nil.
local function hold(messages, settings, found, visible_ms)
  local changed, ids, scores = count_receives(settings, found), found.ids, {}
  -- The first write is a removal, even without any effect, so that receiving still works when the server is at its memory
  -- limit: the server checks the limit only before the first write of a script. The field is that of a message without an id.
  redis.call("HDEL", settings, ":fr")
  if visible_ms then
    local visible_text, c = integer(visible_ms), #changed
    for i = 1, #ids do
      scores[2 * i - 1] = visible_text
      scores[2 * i] = ids[i]
    end
    redis.call("ZADD", messages, unpack(scores))
    changed[c + 1], changed[c + 2] = "totalrecv", raised(redis.call("HGET", settings, "totalrecv"), #ids)
    redis.call("HSET", settings, unpack(changed))
  else
    remove(messages, settings, ids)
    raise_counter(settings, "totalrecv", #ids)
  end
end
