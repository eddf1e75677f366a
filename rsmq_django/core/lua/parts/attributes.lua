-- Read the attributes and counters of a queue: visibility timeout, delay, maximum size, total received, total sent,
-- created, modified, messages, hidden messages. A missing field is "".
local function read_attributes(messages, settings)
  local fields = redis.call("HMGET", settings, "vt", "delay", "maxsize", "totalrecv", "totalsent", "created", "modified")
  for i = 1, 7 do fields[i] = fields[i] or "" end
  fields[8] = redis.call("ZCARD", messages)
  fields[9] = redis.call("ZCOUNT", messages, "(" .. integer(now_ms), "+inf")
  return fields
end
