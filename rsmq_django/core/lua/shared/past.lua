-- Forget what we noted about a message beside its queue, because it is leaving the queue: how often it was given back
-- unused, how often its process died, earlier lives, and why it was a dead letter. Only a message that was received
-- before has any of that: a dead letter was received before it died. Damage there is no reason to keep the message.
local function forget_past(releases, failures, id)
  redis.pcall("HDEL", releases, id, id .. ":crashes", id .. ":lives")
  redis.pcall("HDEL", failures, id)
end
