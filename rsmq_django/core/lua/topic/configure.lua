-- Change what a topic keeps.
--
--   KEYS[1]  hash  what we know of the log
--   ARGV     name and value of each setting; "" removes one
local meta = KEYS[1]
for at = 1, #ARGV, 2 do
  local name, value = ARGV[at], ARGV[at + 1]
  if value == "" then redis.call("HDEL", meta, name) else redis.call("HSET", meta, name, value) end
end
-- The bytes are counted anew, because nobody counted them while there was no limit.
redis.call("HDEL", meta, "bytes", "weighed")
return 1
