-- Change the retention of a topic.
--
--   KEYS[1]  hash  what we know of the log
--   ARGV     name and value of each setting; "" removes one
local meta = KEYS[1]
for at = 1, #ARGV, 2 do
  local name, value = ARGV[at], ARGV[at + 1]
  if value == "" then redis.call("HDEL", meta, name) else redis.call("HSET", meta, name, value) end
end
-- The bytes are counted again, because they are not counted without a limit.
redis.call("HDEL", meta, "bytes", "weighed")
return 1
