-- Remove our additional data of a message that is leaving its queue: number of releases, number of crashes, history before
-- a redrive, and failure record. Only a message that was received before has such data: a dead letter was received before
-- it failed. Invalid data is not a reason to keep the message.
local function forget_past(releases, failures, id)
  redis.pcall("HDEL", releases, id, id .. ":crashes", id .. ":lives")
  redis.pcall("HDEL", failures, id)
end
