-- Set when messages become visible: to extend a lease or to release a message.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   ARGV     visibility timeout in ms from now; then per message: id, receive count or "" for no fence
--
-- Returns 1 changed, 0 no such message, -1 lease lost, in the order given. Errors: QueueNotFound.
--#include parts/clock
--#include parts/fence
local messages, settings = KEYS[1], KEYS[2]
local visible_ms = integer(now_ms + ARGV[1])

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end

local ids, verdicts = check_receipts(messages, settings, 2)
for n, id in ipairs(ids) do
  if verdicts[n] == 1 then
    -- Remove, then add: a server at its memory limit refuses ZADD alone.
    redis.call("ZREM", messages, id)
    redis.call("ZADD", messages, visible_ms, id)
  end
end
return verdicts
