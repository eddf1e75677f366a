-- Find workflows that have not ended.
--
--   KEYS     hash  state of each workflow (tasks/workflow/parts/state)
--
-- Returns for each: position (from 0), 0 while its sender may still add members, members so far, for how many ms nothing
-- has happened to it, and 1 for a map. A key of another type is left out.
local found = {}
for n, key in ipairs(KEYS) do
  local s = redis.pcall("HMGET", key, "status", "sealed", "sent", "keep_ms", "kind")
  if s.err and not s.err:find("WRONGTYPE", 1, true) then return s end
  if s[1] == "running" then
    -- Each event of a workflow sets its time to live to `keep_ms`.
    local idle_ms = (tonumber(s[4]) or 0) - redis.call("PTTL", key)
    local at = #found
    found[at + 1], found[at + 2] = n - 1, s[2] == "0" and 0 or 1
    found[at + 3], found[at + 4] = tonumber(s[3]) or 0, math.max(0, idle_ms)
    found[at + 5] = s[5] == "map" and 1 or 0
  end
end
return found
