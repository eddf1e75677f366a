-- Replace an attribute that is not a number, unless another client changed it meanwhile.
--
--   KEYS[1]  hash  attributes, counters, bodies
--   ARGV     field, the broken value, the new value
--
-- Returns 1 done, 0 it has changed.
if redis.call("HGET", KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call("HSET", KEYS[1], ARGV[1], ARGV[3])
return 1
