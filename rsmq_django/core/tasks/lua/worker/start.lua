-- Mark messages as started in their result records, if their leases are still valid.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3], KEYS[4]  not used here; every script of a worker begins with the same four keys
--   KEYS[5]  hash  result record
--   ARGV     id, receive count, seconds to keep the record, number of words, words
--
-- Returns 1 done, 0 no such message, -1 lease lost.
--#include parts/fence
--#include parts/results
local verdict = verdicts_on(KEYS[1], KEYS[2], {ARGV[1]}, {ARGV[2]})[1]
if verdict == 1 then
  redis.pcall("HDEL", KEYS[5], "finished_ms") -- removal first, so that this works at the memory limit, too
  write_result(KEYS[5], ARGV[3], 4)
end
return verdict
