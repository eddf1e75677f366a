-- Note which messages of an outbox are marked as sent in the database: they need not be remembered much longer.
--
--   KEYS[1]  zset  task id -> time until which it is remembered as sent (ms)
--   ARGV     ms to remember them for relays that read the database earlier; then the task ids
--#include parts/clock
local scores = {}
for n = 2, #ARGV do
  scores[2 * n - 3], scores[2 * n - 2] = integer(now_ms + ARGV[1]), ARGV[n]
end
redis.call("ZADD", KEYS[1], "XX", unpack(scores))
return #ARGV - 1
