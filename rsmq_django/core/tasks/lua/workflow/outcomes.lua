-- Read the outcomes of members, as many as fit into one reply.
--
--   KEYS[1..3]  hash  state, results and failures (parts/state)
--   ARGV     "both", or "failures" for these only; maximum number of bytes of a reply; length of the longest value that is
--            read; replacement for longer values; numbers of the members
--
-- Returns nothing when the workflow does not exist; else value (JSON) and failure (task id, a blank, JSON) of each member
-- in turn, from the first member until the reply is full, "" for missing values.
local what, full, longest, too_long = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
if redis.call("HEXISTS", KEYS[1], "status") == 0 then return {} end
local reply, size = {}, 0

local function read(key, number)
  local length = redis.call("HSTRLEN", key, number)
  if length == 0 then return "" end
  if length > longest then return too_long end
  size = size + length
  return redis.call("HGET", key, number)
end

for n = 5, #ARGV do
  reply[#reply + 1] = what == "both" and read(KEYS[2], ARGV[n]) or ""
  reply[#reply + 1] = read(KEYS[3], ARGV[n])
  if size >= full then break end
end
return reply
