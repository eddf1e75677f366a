-- Find workflows to which their sender may still add members.
--
--   KEYS     hash  state of each workflow (workflow/parts/state)
--
-- Returns of those: position (from 0), members so far, and for how many ms nothing has happened to it.
local found = {}
for n, key in ipairs(KEYS) do
  local s = redis.call("HMGET", key, "status", "sealed", "sent", "keep_ms")
  if s[1] == "running" and s[2] == "0" then
    -- Whatever happens to a workflow lets it live for `keep_ms` from then on.
    local idle_ms = (tonumber(s[4]) or 0) - redis.call("PTTL", key)
    found[#found + 1], found[#found + 2], found[#found + 3] = n - 1, tonumber(s[3]) or 0, math.max(0, idle_ms)
  end
end
return found
