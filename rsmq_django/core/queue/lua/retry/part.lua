-- Read messages of a plan that have not ended, in the order in which they are due.
--
--   KEYS[1]  zset  "id target" -> due (ms); KEYS[2] hash: id -> score and failure record
--   ARGV     "due" or "later"; number to skip; maximum number
--
-- Returns per message: its entry, and score and failure record.
--#include parts/clock
local now = integer(now_ms)
local first, last = "-inf", now
if ARGV[1] == "later" then first, last = "(" .. now, "+inf" end
local reply = {}
for _, entry in ipairs(redis.call("ZRANGEBYSCORE", KEYS[1], first, last, "LIMIT", ARGV[2], ARGV[3])) do
  reply[#reply + 1] = entry
  reply[#reply + 1] = redis.call("HGET", KEYS[2], entry:match("^%S+")) or ""
end
return reply
