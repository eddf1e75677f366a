-- Receive ready messages for a worker: from the first queue first, then from the next, until there is no more room.
--
--   KEYS[1]  hash  messages leased by this worker (parts/strike); expires unless it is renewed
--   KEYS[2], KEYS[3]  set   names of all queues, -1 of them when the key has another type; names of paused queues, skipped
--   then     zsets of configured queues, channel of a waiting process -> how many messages it holds (parts/waiting)
--   then     per queue: zset message id -> time it becomes visible (ms); hash attributes, counters, bodies; hash
--          message id -> number of releases, id:crashes -> processes that died; hash of removed phantoms
--   ARGV   room: number of calls, each of which takes one message or a batch; the shortest lease in ms; number of this
--          fetch; number of zsets for waiting, channel of this process, how many messages it holds, 1 if it may be in the
--          zsets; per queue "s" or "ms", the unit of its visibility timeout; its name; the name under which it is paused;
--          the maximum number of calls from it and the following queues that have "" here, before the others had their
--          turn ("" for all: no limit); if any queue gives batches: the maximum number of messages in all, and per such
--          queue its position and the size of a batch
--
-- Returns the server's time (ms), the ms until the next message becomes visible (-1: no message), the number of all
-- queues, the positions of queues that cannot be read ("2 5"; 0: KEYS[3] cannot, so no queue is paused), and for each
-- queue with messages, perhaps twice: position, number of messages, and of each its id, body, and the time since it became
-- ready (ms; -1: its score is not a time), or, if it had been received before, "<receive count> <releases> <crashes> <first
-- receive> <time since ready>", after "too_long <bytes> <limit> " for a body that is left out.
--#include parts/clock
--#include parts/units
--#include parts/counters
--#include parts/hold
--#include parts/phantoms
--#include parts/hand_out
--#include parts/history
local holds, names, paused, room, shortest_lease_ms = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1]), tonumber(ARGV[2])
local FIRST_WAITING, FIRST_ARG, PER_QUEUE = 4, 8, 4
local FIRST_KEY = FIRST_WAITING + tonumber(ARGV[4])
local out, n = {integer(now_ms), -1, tonumber(redis.pcall("SCARD", names)) or -1, ""}, 4
local queues = (#KEYS - FIRST_KEY + 1) / PER_QUEUE
local tail = FIRST_ARG + PER_QUEUE * queues
local sizes, left = {}, tonumber(ARGV[tail]) or room
for at = tail + 1, #ARGV, 2 do sizes[tonumber(ARGV[at])] = tonumber(ARGV[at + 1]) end
local unreadable, next_ms, longest_ms, skipped, batches, quota = {}, -1, 0, {}, {}, nil
--#include parts/take
local function keys_of(position)
  return unpack(KEYS, FIRST_KEY + PER_QUEUE * (position - 1), FIRST_KEY + PER_QUEUE * position - 1)
end

local pauses = redis.pcall("SCARD", paused)
if type(pauses) == "table" then unreadable[1] = 0 elseif pauses > 0 then
  for position = 1, queues do
    skipped[position] = redis.call("SISMEMBER", paused, ARGV[FIRST_ARG + PER_QUEUE * (position - 1) + 2]) == 1
  end
end
for position = 1, queues do
  quota = tonumber(ARGV[FIRST_ARG + PER_QUEUE * (position - 1) + 3]) or quota
  local most = left > 0 and math.min(quota or 0, room) or 0
  if most > 0 then quota = quota - take(position, most, keys_of(position)) end
end
for position = 1, queues do
  if room <= 0 or left <= 0 then next_ms = 0 break end
  local _, wait_ms = take(position, room, keys_of(position))
  if wait_ms and (next_ms < 0 or wait_ms < next_ms) then next_ms = wait_ms end
end
for position, batch in pairs(batches) do
  redis.call("HSET", holds, ARGV[3] .. " " .. ARGV[FIRST_ARG + PER_QUEUE * (position - 1) + 1], batch)
end
--#include parts/note_queue
for at = FIRST_WAITING, FIRST_KEY - 1 do note_queue(KEYS[at]) end
if longest_ms > 0 then redis.call("PEXPIRE", holds, integer(10 * longest_ms + 60000)) end
out[2], out[4] = next_ms, table.concat(unreadable, " ")
for at = #out, n + 1, -1 do out[at] = nil end -- messages of a queue that turned out to be broken
return out
