-- Add a process's counts to the counters of a queue, once.
--
--   KEYS[1..4]  hash  counters of the present minute, ten minutes, hour, and of all time; they expire
--   ARGV   id of the process; number of this report, which increases; seconds to keep each hash; then per counter: its
--          field and its increment
--
-- Returns 1, or 0 when this report was added before (its reply was lost). Up to 250 counters.
local fresh, process_id, report = KEYS[1], ARGV[1], tonumber(ARGV[2])
local FIRST_TTL, FIRST_FIELD = 3, 7

-- A counter that another program changed to something other than a number, or to the largest number, restarts at 0. Not with
-- raise_counter(): sums of microseconds become larger than the numbers that Lua writes with all their digits.
local function grow(key, field, by)
  local reply = redis.pcall("HINCRBY", key, field, by)
  local failure = type(reply) == "table" and reply.err
  if not failure then return end
  if not (failure:find("integer", 1, true) or failure:find("overflow", 1, true)) then error(failure, 0) end
  redis.call("HSET", key, field, by)
end

local seen = redis.call("HGET", fresh, process_id)
if seen and tonumber(seen) >= report then return 0 end
-- A removal comes first: after it, a server at its memory limit accepts the other writes. It expires, so it is bounded.
redis.call("HDEL", fresh, process_id)
for k, key in ipairs(KEYS) do
  for at = FIRST_FIELD, #ARGV, 2 do grow(key, ARGV[at], ARGV[at + 1]) end
  if k == 1 then redis.call("HSET", key, process_id, ARGV[2]) end
  redis.call("EXPIRE", key, ARGV[FIRST_TTL + k - 1])
end
return 1
