-- Read which members and steps have not succeeded, for display.
--
--   KEYS[1..3]  hash  members, failures and steps (parts/state)
--   ARGV     maximum number of entries of each
--
-- Returns the fields of the three; nothing when one of them has more entries.
local reply = {}
for n, key in ipairs(KEYS) do
  if redis.call("HLEN", key) > tonumber(ARGV[1]) then return {} end
  reply[n] = redis.call("HKEYS", key)
end
return reply
