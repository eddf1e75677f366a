-- Read the beginnings of bodies of later steps, for display.
--
--   KEYS[1]  hash  steps (parts/state)
--   ARGV     number of bytes of each; fields
--
-- Returns the beginning of each body, "" for a step that was sent or does not exist.
local longest, reply = tonumber(ARGV[1]), {}
for n = 2, #ARGV do
  local prepared = redis.call("HGET", KEYS[1], ARGV[n]) or ""
  reply[n - 1] = (prepared:match("^%S+ %d+ (.*)$") or ""):sub(1, longest)
end
return reply
