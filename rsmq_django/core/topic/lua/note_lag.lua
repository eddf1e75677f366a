-- Record the lag of topic groups, for charts.
--
--   KEYS[1..3]  hash  group -> the most it was behind in the present minute, ten minutes, hour; they expire
--   ARGV   seconds to keep each of the three; then of each group its name and its lag
--
-- Returns the number of groups.
for n = 1, 3 do
  redis.call("HDEL", KEYS[n], "") -- first a removal: then this works at the memory limit, too
  for at = 4, #ARGV, 2 do
    local before = tonumber(redis.call("HGET", KEYS[n], ARGV[at]))
    if not before or tonumber(ARGV[at + 1]) > before then redis.call("HSET", KEYS[n], ARGV[at], ARGV[at + 1]) end
  end
  redis.call("EXPIRE", KEYS[n], ARGV[n])
end
return (#ARGV - 3) / 2
