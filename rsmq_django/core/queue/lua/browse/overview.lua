-- Read the fields of many queues for a list, at once. Read-only.
--
--   KEYS     per queue: zset of its messages, hash of its attributes, hash of its failure records
--
-- Returns the server's time (ms), then per queue: visibility timeout, delay, maximum size, total received, total sent,
-- created, modified ("" is absent), all messages, ready messages, time at which the first message becomes visible (ms,
-- "" for an empty queue), failure records, time at which the next hidden message becomes visible (ms, "" for none). A
-- queue that another program broke (a key of the wrong type) has -1 messages.
--#include parts/clock
local FIELDS = {"vt", "delay", "maxsize", "totalrecv", "totalsent", "created", "modified"}
local out, n = {integer(now_ms)}, 1

-- A broken queue must not hide the others.
local function unless_broken(reply) return not (type(reply) == "table" and reply.err) and reply end

for at = 1, #KEYS, 3 do
  local messages, settings, failures = KEYS[at], KEYS[at + 1], KEYS[at + 2]
  local values = unless_broken(redis.pcall("HMGET", settings, unpack(FIELDS))) or {}
  for i = 1, #FIELDS do out[n + i] = values[i] or "" end
  local size = unless_broken(redis.pcall("ZCARD", messages))
  out[n + 8] = size or -1
  out[n + 9] = size and size > 0 and redis.call("ZCOUNT", messages, "-inf", integer(now_ms)) or 0
  out[n + 10] = size and size > 0 and redis.call("ZRANGE", messages, 0, 0, "WITHSCORES")[2] or ""
  out[n + 11] = unless_broken(redis.pcall("HLEN", failures)) or 0
  local hidden = size and size > out[n + 9]
  local next_due = hidden and redis.call("ZRANGEBYSCORE", messages, "(" .. integer(now_ms), "+inf", "WITHSCORES", "LIMIT", 0, 1)
  out[n + 12] = next_due and next_due[2] or ""
  n = n + 12
end
return out
