-- Redeliver messages that were not acknowledged, oldest delivery first.
--
--   KEYS   see parts/queue: one queue
--   ARGV   how many (0..1000); the minimum ms since their last delivery; name of the consumer, or ""
--
-- Returns the ids of messages that became dead, with blanks between; then of each recovered one: id, body, number of
-- deliveries including this one, and how many of them were released unused. Those that became dead are replaced with
-- further ones. Null: no queue.
--#include parts/clock
--#include reliable/parts/queue
--#include reliable/parts/deliveries
--#include reliable/parts/deaths
local queue = queue_at(1)
local count, elapsed_ms = whole_number(1, "count", 0, 1000), whole_number(2, "elapsed_ms", 0, 1e13)
local consumer = ARGV[3] or ""
if sizes_of(queue).state == 0 then return false end
if count == 0 then return {""} end

-- Return up to `most` messages that were delivered long enough ago.
local function find_due(most)
  local oldest, due = redis.call("ZRANGE", queue.delivered, 0, most - 1, "WITHSCORES"), {}
  for at = 1, #oldest, 2 do
    if now_ms - delivered_ms(oldest[at + 1]) < elapsed_ms then break end
    due[#due + 1] = oldest[at]
  end
  return due
end

-- Messages that become dead are replaced with further ones, but very many of them must not block the server.
local MOST_LOOKS, ids, histories, died = 1000, {}, {}, {}
for _ = 1, math.ceil(MOST_LOOKS / count) do
  local due = find_due(count - #ids)
  if #due == 0 then break end
  -- The first write is a removal, so that a server at its memory limit accepts the others, too.
  redis.call("ZREM", queue.delivered, unpack(due))
  local remaining, their_histories = bury_spent(queue, due, read_history(queue, due, 1))
  for n, id in ipairs(remaining) do ids[#ids + 1], histories[#histories + 1] = id, their_histories[n] end
  local n = 1
  for _, id in ipairs(due) do
    if remaining[n] == id then n = n + 1 else died[#died + 1] = id end
  end
  if #ids == count then break end
end
local reply = {table.concat(died, " ")}
if #ids == 0 then return reply end
note_deliveries(queue, ids, histories, consumer)
add_to_total(queue, "recovered", #ids)

for n, body in ipairs(redis.call("HMGET", queue.bodies, unpack(ids))) do
  local at, history = 4 * (n - 1) + 1, histories[n]
  reply[at + 1], reply[at + 2], reply[at + 3], reply[at + 4] = ids[n], body or "", history.count, history.unused
end
return reply
