-- Read some messages of one kind without changing anything.
--
--   KEYS   see parts/queue: one queue
--   ARGV   "undelivered", "delayed", "delivered" or "dead"; index of the first (negative: from the end); how many
--          (1..1000); number of bytes of each body, without it all
--
-- Returns seven values of each in one flat list: id, body, time (ms; last delivery, end of the delay, or death; 0 for
-- undelivered messages), ms since then, deliveries, consumer, size of the whole body. A start outside returns nothing.
-- Errors: ReliableQueueNotFound.
--#include parts/clock
--#include reliable/parts/queue
--#include reliable/parts/deliveries
-- The server cannot read a part of a field, so a larger body is left out instead of cut.
local LARGEST_TO_CUT_BYTES = 1048576
local queue, kind = queue_at(1), ARGV[1]
local start, count = whole_number(2, "start", -1e15, 1e15), whole_number(3, "count", 1, 1000)
local longest = ARGV[4] and whole_number(4, "bytes of a body", 0, 1e15)
local sizes = sizes_of(queue)
if sizes.state == 0 then return redis.error_reply("RSMQ ReliableQueueNotFound") end
if not (kind == "undelivered" or kind == "delayed" or kind == "delivered" or kind == "dead") then
  return redis.error_reply("RSMQ InvalidArgument the kind must be undelivered, delayed, delivered or dead")
end

if start < 0 then start = start + sizes[kind] end
if start < 0 or start >= sizes[kind] then return {} end
local first, last = integer(start), integer(start + count - 1)
local ids, times = {}, {}
if kind == "undelivered" then
  ids = redis.call("LRANGE", queue.undelivered, first, last)
else
  local found = redis.call("ZRANGE", queue[kind], first, last, "WITHSCORES")
  for n = 1, #found / 2 do
    local score = found[2 * n]
    ids[n], times[n] = found[2 * n - 1], kind == "delivered" and delivered_ms(score) or tonumber(score)
  end
end

local function beginning_of(id)
  local size = redis.call("HSTRLEN", queue.bodies, id)
  if size == 0 or longest == 0 or size > math.max(longest, LARGEST_TO_CUT_BYTES) then return "", size end
  return redis.call("HGET", queue.bodies, id):sub(1, longest), size
end

local histories = read_history(queue, ids, kind == "delivered" and 1 or 0)
local bodies, reply = longest and {} or redis.call("HMGET", queue.bodies, unpack(ids)), {}
for n, id in ipairs(ids) do
  local at = 7 * (n - 1)
  local body, size = bodies[n] or "", #(bodies[n] or "")
  if longest then body, size = beginning_of(id) end
  reply[at + 1], reply[at + 2] = id, body
  reply[at + 3], reply[at + 4] = times[n] or 0, times[n] and now_ms - times[n] or 0
  reply[at + 5], reply[at + 6], reply[at + 7] = histories[n].count, histories[n].consumer, size
end
return reply
