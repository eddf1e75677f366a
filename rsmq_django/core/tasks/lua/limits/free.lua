-- Free the slots of a message that has ended in the concurrency limits of its task.
--
--   KEYS     hash per limit: message id -> "<receive count> <held until at least, ms> <queue>"
--   ARGV     id, receive count
--
-- Returns how many were freed. The slot of a later delivery stays.
local id, receive_count = ARGV[1], ARGV[2]
local freed = 0
for _, key in ipairs(KEYS) do
  local text = redis.call("HGET", key, id)
  if text and text:match("^(%d+) ") == receive_count then freed = freed + redis.call("HDEL", key, id) end
end
return freed
