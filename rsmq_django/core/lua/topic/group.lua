-- A group of readers: where it is in the log, and what its consumers hold.
--
-- A group is a table of keys: cursor, groups, own, pending, due, counts, consumers, and `name`.
--   cursor: every message up to this index is done with; the only key that plain clients know
--   own: `read` = the last index handed out, while something is held; skipped, dead; `forgot` = when (ms) held
--     messages were forgotten, by a seek say: later deliveries have other receipts
--   pending: what is held, scored with its index; due: the same, scored with when it is handed out again (ms)
--   counts: index -> deliveries, from the second on; consumers: name -> last seen (ms)
--#include shared/counters

local function forget_held(group)
  redis.call("UNLINK", group.pending, group.due, group.counts)
  redis.call("HDEL", group.own, "read")
  redis.call("HSET", group.own, "forgot", integer(now_ms))
end

-- A removal first, so that it works at the memory limit.
local function move_cursor(group, position)
  redis.call("DEL", group.cursor)
  redis.call("SET", group.cursor, position)
end

-- Let the cursor say what is done with. `read` is the last index handed out, `skipped` how many the group missed.
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
