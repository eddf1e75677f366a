-- The times in which a queue did not change, which have no samples: zset, "begin sent received" -> end (s); with messages
-- "begin sent received messages first" -> end.

-- The number of messages ever sent to a queue that did not change in a span of time; nil if it did, as far as is known.
local function sent_while_unchanged(times, begins_s, ends_s)
  local found = redis.call("ZRANGEBYSCORE", times, begins_s, "+inf", "LIMIT", 0, 1)
  local since_s, sent = (found[1] or ""):match("^(%d+) (%d+) %d+")
  if since_s and tonumber(since_s) < tonumber(ends_s) then return tonumber(sent) end
end
