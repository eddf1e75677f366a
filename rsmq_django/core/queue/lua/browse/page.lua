-- Read a page of messages in the order in which they become visible. Read-only.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> failure record (JSON); absent when the records are not needed
--   ARGV     score and id of the message before the page, or "" and "" for the first page; highest score to show, "now"
--            or "+inf"; number of messages (1..1000); number of bytes of each body
--
-- Returns the server's time (ms), then per message the seven values of parts/read. There may be more messages even if
-- fewer than requested are returned. Errors: QueueNotFound.
--#include parts/clock
--#include queue/browse/parts/position
--#include queue/browse/parts/read
-- A page of large messages must not block the server.
local BUDGET_BYTES = 1048576
local messages, settings, failures = KEYS[1], KEYS[2], KEYS[3]
local score, id, last, count, longest = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end
if last == "now" then last = integer(now_ms) end

local first = score == "" and 0 or rank_behind(messages, score, id)
local behind_last = redis.call("ZCOUNT", messages, "-inf", last)
count = math.min(count, behind_last - first)
if count <= 0 then return {integer(now_ms)} end
local found = redis.call("ZRANGE", messages, first, first + count - 1, "WITHSCORES")
return read_into({integer(now_ms)}, settings, failures, found, longest, BUDGET_BYTES)
