-- Add what a process has counted to the counters of a queue, once.
--
--   KEYS[1..4]  hash  counters of the present minute, ten minutes, hour, and of all time; they expire
--   ARGV   who has counted; the number of this report, which grows; seconds to keep each hash; then per counter: its
--          field and by how much it grows
--
-- Returns 1, or 0 when this report has arrived before (its reply was lost). At most 250 counters.
local fresh, reporter, report = KEYS[1], ARGV[1], tonumber(ARGV[2])
local FIRST_TTL, FIRST_FIELD = 3, 7

local seen = redis.call("HGET", fresh, reporter)
if seen and tonumber(seen) >= report then return 0 end
-- A removal comes first: after it, a server at its memory limit takes what follows. It expires, so it is bounded.
redis.call("HDEL", fresh, reporter)
for k, key in ipairs(KEYS) do
  for at = FIRST_FIELD, #ARGV, 2 do redis.call("HINCRBY", key, ARGV[at], ARGV[at + 1]) end
  if k == 1 then redis.call("HSET", key, reporter, ARGV[2]) end
  redis.call("EXPIRE", key, ARGV[FIRST_TTL + k - 1])
end
return 1
