-- Cancel a drain: return messages of its journal to their queue, unchanged and visible now.
--
--   KEYS[1]  zset    message id -> time it becomes visible (ms)
--   KEYS[2]  hash    attributes, counters, bodies
--   KEYS[3]  stream  journal
--   KEYS[4]  hash    leased messages in the journal: id -> our receive count
--   ARGV     maximum number of entries (1..1000)
--
-- A leased message never left its queue, so only its journal entry is removed. Returns entries removed, messages returned.
-- Errors: QueueNotFound.
--#include parts/clock
local messages, settings, journal, open = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end
redis.call("ZCARD", messages) -- a key of the wrong type fails here, before any removal
redis.call("HLEN", open)

local entries = redis.call("XRANGE", journal, "-", "+", "COUNT", ARGV[1])
local back = 0
for _, entry in ipairs(entries) do
  local id, receive_count, first_received, body = entry[2][2], entry[2][4], entry[2][6], entry[2][8]
  redis.call("XDEL", journal, entry[1])
  if redis.call("HDEL", open, id) == 0 then
    redis.call("HSET", settings, id, body, id .. ":rc", receive_count)
    if first_received ~= "" then redis.call("HSET", settings, id .. ":fr", first_received) end
    redis.call("ZADD", messages, "NX", integer(now_ms), id)
    back = back + 1
  end
end
return {#entries, back}
