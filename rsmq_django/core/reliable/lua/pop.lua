-- Deliver messages: from the first queue first, then from the next. They are stored until they are acknowledged.
--
--   KEYS   see parts/queue: any number of queues
--   ARGV   how many (0..1000) from all queues together; name of the consumer, or ""; "look" from a client that waits in
--          line: the token of a fresh message stays with the client that was woken, which may be about to take it
--
-- Returns the time (ms); the ms until the next delayed message may be delivered (-1: there is none); how many messages
-- were delivered before; the positions of queues that do not exist, with spaces between. Then per message: name of its
-- queue, id, body, number of deliveries including this one, and how many of them were given back unused.
--#include parts/clock
--#include reliable/parts/queue
--#include reliable/parts/deliveries
--#include reliable/parts/deaths
local room, consumer = whole_number(1, "count", 0, 1000), ARGV[2] or ""
-- Messages that become dead are replaced with further ones, but many of them must not block the server.
local MOST_ROUNDS, HEAD, queues, sizes, missing = 10, 4, {}, {}, {}
local delivered, next_due_ms = 0, -1
for position = 1, (#KEYS - 1) / KEYS_PER_QUEUE do
  queues[position] = queue_at(position)
  sizes[position] = sizes_of(queues[position])
  delivered = delivered + sizes[position].delivered
  if sizes[position].state == 0 then missing[#missing + 1] = position end
end

-- Move due messages from `delayed` to the end of `undelivered`; return how many, and the ms until the next one, or nil.
local function end_delays(queue)
  local due = redis.call("ZRANGEBYSCORE", queue.delayed, "-inf", integer(now_ms), "LIMIT", 0, 1000)
  if #due > 0 then
    redis.call("ZREM", queue.delayed, unpack(due))
    redis.call("RPUSH", queue.undelivered, unpack(due))
  end
  local next_due = redis.call("ZRANGE", queue.delayed, 0, 0, "WITHSCORES")[2]
  return #due, next_due and math.max(0, tonumber(next_due) - now_ms)
end

local reply, n = {}, HEAD

-- The first write is a removal, so that a server at its memory limit accepts the others, too.
local function deliver(queue, ids)
  local remaining, histories = bury_spent(queue, ids, read_history(queue, ids, 0))
  if #remaining == 0 then return 0 end
  note_deliveries(queue, remaining, histories, consumer)
  for at, body in ipairs(redis.call("HMGET", queue.bodies, unpack(remaining))) do
    reply[n + 1], reply[n + 2], reply[n + 3] = queue.name, remaining[at], body or ""
    reply[n + 4], reply[n + 5], n = histories[at].count, histories[at].unused, n + 5
  end
  return #remaining
end

for position, queue in ipairs(queues) do
  local due, wait_ms = 0, nil
  if sizes[position].delayed > 0 then due, wait_ms = end_delays(queue) end
  if wait_ms and (next_due_ms < 0 or wait_ms < next_due_ms) then next_due_ms = wait_ms end
  local popped = 0
  for _ = 1, MOST_ROUNDS do
    local ids = room > 0 and redis.call("LPOP", queue.undelivered, room)
    if not ids then break end
    local taken = deliver(queue, ids)
    popped, room = popped + taken, room - taken
  end
  add_to_total(queue, "popped", popped)
  -- For all given queues: the caller may have taken the token of a queue from which it got no message.
  if due > 0 or ARGV[3] ~= "look" or not is_fresh(queue) then announce(queue) end
end
reply[1], reply[2], reply[3], reply[HEAD] = now_ms, next_due_ms, delivered, table.concat(missing, " ")
return reply
