-- Return the identity of a stream as a log, and the facts of XINFO STREAM; "" and nil when the stream does not exist.
--
-- The identity is the name of a consumer group that nothing reads with: it is part of the stream, so it is copied to
-- replicas and files of the server, and removed with the stream. "" without one. Other programs name groups otherwise.
local STREAM = "STREAM"
local LOG = "^log:" .. string.rep("%x", 32) .. "$"

local function log_of(stream)
  if redis.call("EXISTS", stream) == 0 then return "" end
  local info, fact = redis.call("XINFO", STREAM, stream, "FULL", "COUNT", 1), {}
  for i = 1, #info, 2 do fact[info[i]] = info[i + 1] end
  for _, group in ipairs(fact["groups"]) do
    if string.find(group[2], LOG) then return group[2], fact end
  end
  return "", fact
end
