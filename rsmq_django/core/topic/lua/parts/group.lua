-- A consumer group: its position in the log, and its messages in flight.
--
-- A group is a table of keys: cursor, groups, own, pending, due, counts, consumers, and `name`.
--   cursor: every message up to this index is settled; the only key that plain clients use
--   own: `read` = the last delivered index, while messages are in flight; skipped, dead; `forgot` = when (us) messages
--     in flight were forgotten, for example by a seek: later deliveries have other receipts
--   pending: indexes in flight, scored with the index; due: the same, scored with their redelivery time (ms)
--   counts: index -> deliveries, from the second on (deliveries_of); consumers: name -> last seen (ms)
--#include parts/counters

local function forget_held(group)
  redis.call("UNLINK", group.pending, group.due, group.counts)
  redis.call("HDEL", group.own, "read")
  redis.call("HSET", group.own, "forgot", integer(now_us))
end

-- A removal first, so that it works at the memory limit.
local function move_cursor(group, position)
  redis.call("DEL", group.cursor)
  redis.call("SET", group.cursor, position)
end

-- Move the cursor up to the settled messages. `read` is the last delivered index, `skipped` the number of missed ones.
local function settle_cursor(group, read, skipped)
  local lowest = redis.call("ZRANGE", group.pending, 0, 0)[1]
  move_cursor(group, lowest and lowest - 1 or read)
  if lowest then redis.call("HSET", group.own, "read", read) else redis.call("HDEL", group.own, "read") end
  if skipped and skipped > 0 then raise_counter(group.own, "skipped", skipped) end
end

local function note_consumer(group, consumer)
  redis.call("ZREMRANGEBYSCORE", group.consumers, "-inf", integer(now_ms - 86400000))
  if consumer ~= "" then redis.call("ZADD", group.consumers, integer(now_ms), consumer) end
  redis.call("ZADD", group.groups, integer(now_ms), group.name)
end
