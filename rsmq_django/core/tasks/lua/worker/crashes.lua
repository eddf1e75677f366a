-- Read how many processes crashed while they ran a message. Read-only.
--
--   KEYS[1]  hash  message id -> ..., "{id}:crashes" -> how many
--   ARGV     message id
--
-- Returns the number, 0 for none.
return tonumber(redis.call("HGET", KEYS[1], ARGV[1] .. ":crashes")) or 0
