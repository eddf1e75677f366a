-- Resume queues, and wake their idle workers.
--
--   KEYS[1]  set  names of paused queues
--   ARGV     per queue: name, channel
--
-- Returns how many were paused before.
local resumed = 0
for at = 1, #ARGV, 2 do
  if redis.call("SREM", KEYS[1], ARGV[at]) == 1 then
    resumed = resumed + 1
    -- A missing permission for the wake-up must not look like a failure: the queue is resumed.
    redis.pcall("PUBLISH", ARGV[at + 1], "0")
  end
end
return resumed
