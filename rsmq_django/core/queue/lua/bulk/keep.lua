-- Remove the time to live of stages that are being published: they contain the only copy of their messages.
--
--   KEYS[1..] zset and hash of each stage (at most 250 stages)
--
-- Returns nothing of use.
for _, key in ipairs(KEYS) do redis.call("PERSIST", key) end
return 0
