-- Read the main numbers of a queue: depth, age of the backlog, totals and memory. Read-only.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--
-- Returns all messages; ready messages; ms since the first ready message became ready (-1: none is ready); how many hidden
-- messages had been received before, and 1 when that is an estimate; total sent; total received; created; bytes of
-- memory (-1: the server does not report it). Errors: QueueNotFound.
--#include parts/clock
--#include queue/browse/parts/received
-- A check of a million hidden messages would take seconds; a sample of this size gives the share within a few per cent.
local MAX_LOOKS = 500
local messages, settings = KEYS[1], KEYS[2]

-- Returns the bytes of a key. The server's user may lack this permission; the other numbers are returned without it.
local function memory_of(key)
  local subcommand = "USAGE"
  local bytes = redis.pcall("MEMORY", subcommand, key, "SAMPLES", 20)
  if type(bytes) == "table" then return -1 end
  return bytes or 0
end

local totals = redis.call("HMGET", settings, "vt", "totalsent", "totalrecv", "created")
if not totals[1] then return redis.error_reply("RSMQ QueueNotFound") end

local all = redis.call("ZCARD", messages)
local ready = redis.call("ZCOUNT", messages, "-inf", integer(now_ms))
local waited_ms = ready > 0 and now_ms - tonumber(redis.call("ZRANGE", messages, 0, 0, "WITHSCORES")[2]) or -1
local received, is_estimate = received_among(messages, settings, ready, all - ready, MAX_LOOKS)
local bytes, more = memory_of(messages), memory_of(settings)
if bytes >= 0 and more >= 0 then bytes = bytes + more else bytes = -1 end
local sent, taken, created = totals[2] or "", totals[3] or "", totals[4] or ""
return {all, ready, integer(waited_ms), received, is_estimate, sent, taken, created, bytes}
