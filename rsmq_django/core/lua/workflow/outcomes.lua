-- Read what became of a slice of members.
--
--   KEYS[1], KEYS[2]  hash  results and failures (parts/state)
--   ARGV     number of the first member, number of the last one
--
-- Returns value (JSON) and failure (task id, a blank, JSON) of each in turn, "" for what there is not.
local numbers, reply = {}, {}
for number = tonumber(ARGV[1]), tonumber(ARGV[2]) do numbers[#numbers + 1] = number end
local values = redis.call("HMGET", KEYS[1], unpack(numbers))
local failures = redis.call("HMGET", KEYS[2], unpack(numbers))
for n = 1, #numbers do reply[2 * n - 1], reply[2 * n] = values[n] or "", failures[n] or "" end
return reply
