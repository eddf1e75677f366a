-- Say that workers live, and ask which ones have been silent for too long.
--
--   KEYS[1]  zset  worker id -> time of its last beat (ms)
--   ARGV     ms of silence after which a worker is dead; then the ids of the living
--
-- Returns up to 100 ids of dead workers. They stay in the set until what they held has been given back.
--#include shared/clock
for n = 2, #ARGV do redis.call("ZADD", KEYS[1], integer(now_ms), ARGV[n]) end
return redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", integer(now_ms - ARGV[1]), "LIMIT", 0, 100)
