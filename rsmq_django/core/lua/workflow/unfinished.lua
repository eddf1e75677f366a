-- Read which members and steps have not succeeded, for display.
--
--   KEYS[1..3]  hash  members, failures and steps (parts/state)
--   ARGV     how many of each are read at most
--
-- Returns the fields of the three; nothing when there are more of one.
local reply = {}
for n, key in ipairs(KEYS) do
  if redis.call("HLEN", key) > tonumber(ARGV[1]) then return {} end
  reply[n] = redis.call("HKEYS", key)
end
return reply
