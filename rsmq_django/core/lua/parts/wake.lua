-- Wake one worker process that waits for messages of a queue, or all of them when no process has noted that it waits.
--   waiting: zset, channel of a waiting process -> how many messages it holds, nil to wake all; messages: zset of the queue
-- A process is removed from `waiting` with its wake-up, and adds itself with the fetch that follows. So a process that has
-- ended or does not respond costs no more than one wake-up.
local MOST_ENDED = 20

local function wake(waiting, channel, messages)
  for _ = 1, waiting and MOST_ENDED or 0 do
    local idlest = redis.pcall("ZPOPMIN", waiting) -- an error when the key has another type
    if not idlest[1] then break end
    local listeners = redis.pcall("PUBLISH", idlest[1], "1")
    if type(listeners) == "number" and listeners > 0 then return end
  end
  -- A missing permission for the wake-up must not look like a failed send: the messages are stored.
  redis.pcall("PUBLISH", channel, redis.call("ZCARD", messages))
end
