-- Read the failure records of dead letters, without bodies and tracebacks. Read-only.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> failure record (JSON)
--   ARGV     score and id of the message before the first one, or "" and ""; highest score to read, or "+inf"; number
--            of messages (1..1000)
--
-- Returns the server's time (ms), then per message the seven values of parts/read. Errors: QueueNotFound.
--#include parts/clock
--#include queue/browse/parts/position
--#include queue/browse/parts/read
--#include queue/browse/parts/record
local messages, settings, failures = KEYS[1], KEYS[2], KEYS[3]
local score, id, last, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end
local first = score == "" and 0 or rank_behind(messages, score, id)
count = math.min(count, redis.call("ZCOUNT", messages, "-inf", last) - first)
local out = {integer(now_ms)}
if count <= 0 then return out end

local found = redis.call("ZRANGE", messages, first, first + count - 1, "WITHSCORES")
for at = 1, #found, 2 do
  read_into(out, settings, nil, {found[at], found[at + 1]}, 0, math.huge)
  out[#out] = head_of(failures, found[at])
end
return out
