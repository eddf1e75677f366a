-- Remove the notes that a process waits for messages (parts/waiting). Where a sender has removed a note, it has woken this
-- process, which takes no message: all other processes are woken instead.
--
--   KEYS     per configured queue: zset, channel of a waiting process -> how many messages it holds
--   ARGV     the channel of this process; per key the channel that wakes all processes of its queue
--
-- Returns how many notes a sender had removed.
local channel, missing = ARGV[1], 0
for n = 1, #KEYS do
  if redis.pcall("ZREM", KEYS[n], channel) == 0 then
    missing = missing + 1
    redis.pcall("PUBLISH", ARGV[n + 1], "0")
  end
end
return missing
