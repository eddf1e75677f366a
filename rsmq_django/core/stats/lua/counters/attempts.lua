-- Read how many attempts in many queues ended in one span of time, and how many of them failed.
--
--   KEYS  hash per queue: its counters in that span (core/stats/counters.py)
--
-- Returns for each queue with such attempts: its position in KEYS, succeeded, failed.
local FAILED = {retried = true, dead = true, discarded = true, lost = true}
local out = {}

for at, key in ipairs(KEYS) do
  local succeeded, failed, fields = 0, 0, redis.call("HGETALL", key)
  for n = 1, #fields, 2 do
    local kind = fields[n]:match("^(%a+):")
    if kind == "succeeded" then succeeded = succeeded + (tonumber(fields[n + 1]) or 0) end
    if FAILED[kind] then failed = failed + (tonumber(fields[n + 1]) or 0) end
  end
  if succeeded + failed > 0 then out[#out + 1], out[#out + 2], out[#out + 3] = at, succeeded, failed end
end
return out
