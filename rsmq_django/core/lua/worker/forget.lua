-- Take workers off the list: they have ended, or what they held has been given back.
--
--   KEYS[1]  zset  worker id -> time of its last beat (ms)
--   KEYS[2..]  hash  what some of them held, to be deleted; an empty one is gone by itself
--   ARGV     their ids
redis.call("ZREM", KEYS[1], unpack(ARGV))
for n = 2, #KEYS do redis.call("UNLINK", KEYS[n]) end
return 1
