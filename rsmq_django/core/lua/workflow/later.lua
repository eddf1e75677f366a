-- Read the beginnings of bodies of later steps, for display.
--
--   KEYS[1]  hash  steps (parts/state)
--   ARGV     how many bytes of each; fields
--
-- Returns the beginning of each body, "" for what was sent, or is no step.
local longest, reply = tonumber(ARGV[1]), {}
for n = 2, #ARGV do
  local prepared = redis.call("HGET", KEYS[1], ARGV[n]) or ""
  reply[n - 1] = (prepared:match("^%S+ %d+ (.*)$") or ""):sub(1, longest)
end
return reply
