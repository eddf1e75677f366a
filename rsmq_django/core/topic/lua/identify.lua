-- Give a topic an identity as a log, unless it has one, and read its bounds. What another client has written there is
-- no identity.
--
--   KEYS[1], KEYS[2]  last index, meta (topic/publish)
--   ARGV     identity
--
-- The identity is gone with the log: when the topic is deleted, or begins again (topic/parts/append).
-- Returns the identity, or "" for a topic without messages ever; the lowest stored index, and the last one.
-- Errors: TopicBroken <field> <value>.
--#include topic/parts/index
local log, proposed = {index = KEYS[1], meta = KEYS[2]}, ARGV[1]
local IDENTITY = "^" .. string.rep("%x", 32) .. "$"

local failure = open_log(log)
if failure then return failure end
if log.last == 0 then return {"", 1, 0} end
local identity = redis.call("HGET", log.meta, "log")
if not (identity and identity:find(IDENTITY)) then
  -- First a command that adds nothing: after it, a script may write at the memory limit.
  redis.call("HDEL", log.meta, "log")
  redis.call("HSET", log.meta, "log", proposed)
  identity = proposed
end
return {identity, log.first, log.last}
