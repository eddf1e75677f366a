-- Read the data of a slice of members, for display.
--
--   KEYS[1..3]  hash  members, results and failures (parts/state)
--   ARGV     number of the first member, number of the last one (up to 1,000 members); number of bytes of each value
--
-- Returns for each: id of its current task ("": it has ended), value (JSON, or its beginning), its size in
-- bytes, failure (task id, a blank, JSON); "" for missing values.
local first, longest, numbers, reply = tonumber(ARGV[1]), tonumber(ARGV[3]), {}, {}
for n = 0, math.min(ARGV[2] - first, 999) do numbers[n + 1] = first + n end
local tasks = redis.call("HMGET", KEYS[1], unpack(numbers))
local values = redis.call("HMGET", KEYS[2], unpack(numbers))
local failures = redis.call("HMGET", KEYS[3], unpack(numbers))
for n = 1, #numbers do
  local at, value = 4 * (n - 1), values[n] or ""
  local size = (value:find("\n", 1, true) or #value + 1) - 1 -- without the proof for a sealed queue
  reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = tasks[n] or "", value:sub(1, longest), size, failures[n] or ""
end
return reply
