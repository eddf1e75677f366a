-- Count the messages of a queue.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--
-- Returns the server's time (ms), all messages, ready messages. Errors: QueueNotFound.
--#include parts/clock
if redis.call("HEXISTS", KEYS[2], "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end
return {
  integer(now_ms),
  redis.call("ZCARD", KEYS[1]),
  redis.call("ZCOUNT", KEYS[1], "-inf", integer(now_ms)),
}
