-- Remove all messages of a queue, including those in flight, and keep the queue: its attributes and counters stay, and
-- the given fields of other programs.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> failure record; KEYS[4] hash of releases
--   ARGV     total sent when the caller read it, "" if it does not matter; then up to a thousand fields of other
--            programs
--
-- Returns how many there were, or -1 when more were sent since: nothing was removed. Takes as long for a million
-- messages as for one: the server frees whole keys in the background, and only the fields that stay are written back.
-- Errors: QueueNotFound.
local messages, settings, failures, releases = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local KEPT = {"vt", "delay", "maxsize", "created", "modified", "totalrecv", "totalsent"}

for i = 2, #ARGV do KEPT[#KEPT + 1] = ARGV[i] end
local values = redis.call("HMGET", settings, unpack(KEPT))
if not values[1] then return redis.error_reply("RSMQ QueueNotFound") end
if ARGV[1] ~= "" and (values[7] or "0") ~= ARGV[1] then return -1 end

local words = {}
for i, field in ipairs(KEPT) do
  if values[i] then
    words[#words + 1] = field
    words[#words + 1] = values[i]
  end
end
local removed = redis.call("ZCARD", messages)
redis.call("UNLINK", messages, settings, failures, releases)
redis.call("HSET", settings, unpack(words))
return removed
