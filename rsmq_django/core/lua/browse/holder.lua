-- Ask which worker notes that it holds a message. Nothing is changed.
--
--   KEYS     hash per worker  message id -> "receive count queue"
--   ARGV     message id, receive count, name of the queue
--
-- Returns the place in KEYS of the first one that does, 0 for none.
for at = 1, #KEYS do
  if redis.call("HGET", KEYS[at], ARGV[1]) == ARGV[2] .. " " .. ARGV[3] then return at end
end
return 0
