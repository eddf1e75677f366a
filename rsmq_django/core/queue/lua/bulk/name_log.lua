-- Give a stream an identity as a log, unless it has one (see parts/log_of).
--
--   KEYS[1]  stream
--   ARGV     identity, beginning with "log:"
--
-- Returns the identity of the stream; "" when it does not exist.
--#include parts/log_of
local CREATE = "CREATE"
local stream, proposed = KEYS[1], ARGV[1]

local log, fact = log_of(stream)
if not fact or log ~= "" then return log end
-- First a command that removes nothing: after it, a script may write at the memory limit. The archive frees memory.
redis.call("XTRIM", stream, "MINID", "0-1")
redis.call("XGROUP", CREATE, stream, proposed, "0-0")
return proposed
