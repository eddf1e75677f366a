-- Raise one of a queue's counters. One that another client left as no number begins anew: raising it would fail, and
-- what was written before would stay.
local function raise_counter(settings, field, by)
  local reply = redis.pcall("HINCRBY", settings, field, by)
  if type(reply) == "table" and reply.err then redis.call("HSET", settings, field, by) end
end
