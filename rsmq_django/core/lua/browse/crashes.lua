-- Ask how many processes died while they ran a message. Nothing is changed.
--
--   KEYS[1]  hash  message id -> ..., "{id}:crashes" -> how many
--   ARGV     message id
--
-- Returns the number, 0 when none did.
return tonumber(redis.call("HGET", KEYS[1], ARGV[1] .. ":crashes")) or 0
