-- Read the size of a workflow, before its members are read.
--
--   KEYS[1..4]  hash  state, members, results and failures (parts/state)
--
-- Returns nothing when the workflow does not exist; else `sent`, `then_members` and `on_failure_members` as they are
-- stored, "" for values that are missing or too long; then the number of entries in members, results and failures.
local LONGEST = 256
local s = redis.call("HMGET", KEYS[1], "status", "sent", "then_members", "on_failure_members")
if not s[1] then return {} end
local reply = {}
for n = 2, 4 do
  reply[n - 1] = s[n] and #s[n] <= LONGEST and s[n] or ""
  reply[n + 2] = redis.call("HLEN", KEYS[n])
end
return reply
