-- Move or lease visible messages of a queue into a journal, with their bodies: a batch can then be read again byte for
-- byte, regardless of later changes to the queue.
--
--   KEYS[1]  zset    message id -> time it becomes visible (ms)
--   KEYS[2]  hash    attributes, counters, bodies
--   KEYS[3]  hash    phantoms that were removed (parts/phantoms)
--   KEYS[4]  stream  journal: i id, c receive count, f first receive (ms), b body
--   KEYS[5]  hash    leased messages in the journal: id -> our receive count
--   ARGV     latest time of becoming visible (ms, 0: now); lease in ms (0: the messages leave the queue); maximum (1..1000)
--
-- Returns how many messages were taken. Errors: QueueNotFound.
--#include parts/clock
--#include parts/counters
--#include parts/hold
--#include parts/phantoms
--#include parts/hand_out
local messages, settings, phantoms, journal, open = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local until_ms, lease_ms, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end
redis.call("XLEN", journal) -- a key of the wrong type fails here, before any message is taken
redis.call("HLEN", open)
local visible_ms = lease_ms > 0 and now_ms + lease_ms or nil
-- Messages that become visible during a run belong to the next run, otherwise a busy queue would never end.
if until_ms > 0 and until_ms < now_ms then now_ms = until_ms end

local found = hand_out(messages, settings, phantoms, most, visible_ms)
for i, id in ipairs(found.ids) do
  local body, receive_count, first_received = found.values[2 * i - 1], found.receive_counts[i], found.first_receives[i]
  -- Our own lease has expired: its message is in the journal already, and must not become a second row.
  local is_new = lease_ms == 0 or redis.call("HSET", open, id, receive_count) == 1
  if is_new then redis.call("XADD", journal, "*", "i", id, "c", receive_count, "f", first_received, "b", body) end
end
return #found.ids
