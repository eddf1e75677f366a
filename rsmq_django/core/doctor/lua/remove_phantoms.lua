-- Remove phantoms that a second check finds unchanged: still no body, and the same score.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  phantoms that were removed (parts/phantoms)
--   ARGV     per phantom: id, score
--
-- Returns how many were removed.
--#include parts/clock
--#include parts/counters
--#include parts/phantoms
local messages, settings, phantoms = KEYS[1], KEYS[2], KEYS[3]
local removed, noted = {}, {}
for at = 1, #ARGV, 2 do
  local id, score = ARGV[at], redis.call("ZSCORE", messages, ARGV[at])
  if not noted[id] and score and tonumber(score) == tonumber(ARGV[at + 1]) and redis.call("HEXISTS", settings, id) == 0 then
    removed[#removed + 1], noted[id] = id, true
  end
end
quarantine(messages, settings, phantoms, removed)
return #removed
