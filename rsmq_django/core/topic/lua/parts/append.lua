-- Append messages to a log, note the time (topic/times), wake all readers. The log has been opened.
local LOOKED_AT = 1000

-- Return a key of a log that another program uses: it has another type.
local function foreign_key(log)
  for _, hash in ipairs({log.meta, log.headers, log.keys, log.latest}) do
    if type(redis.pcall("HGET", hash, "")) == "table" then return hash end
  end
  for _, zset in ipairs({log.time, log.stale, log.tombstones, log.groups}) do
    if type(redis.pcall("ZCARD", zset)) == "table" then return zset end
  end
end

-- Open a log (topic/index) to append to it. Returns an error reply if that would fail after messages were stored: they
-- would be published again.
local function open_to_append(log)
  local key = foreign_key(log)
  return key and redis.error_reply("RSMQ TopicBroken key " .. key) or open_log(log)
end

-- Start of a log whose index is lower than the recorded one. If messages still exist, only the index was lost:
-- start after them, so that none is overwritten. Otherwise the log was deleted and starts anew.
local function end_of_log(log, noted, count)
  if log.last >= noted then return log.last, false end
  local keys = message_keys(log, log.last + 1, math.min(log.last + count, noted))
  for index = math.max(log.last + count, noted - LOOKED_AT) + 1, noted do keys[#keys + 1] = log.prefix .. index end
  if redis.call("EXISTS", unpack(keys)) > 0 then return noted, false end
  return log.last, true
end

local function forget_past(log)
  redis.call("UNLINK", log.time, log.wake, log.headers, log.keys, log.latest, log.stale, log.tombstones)
  redis.call("HDEL", log.meta, "first", "last", "slot", "bytes", "weighed", "log")
  log.first = 1
end

local function note_end(log, newest_slot, first_new)
  local slot = now_ms - now_ms % SLOT_MS
  redis.call("HSET", log.meta, "last", log.last)
  if slot > (tonumber(newest_slot) or 0) then
    redis.call("ZADD", log.time, integer(slot), first_new)
    redis.call("HSET", log.meta, "slot", integer(slot))
  end
  -- The id of the only entry is the last index: a reader at index e waits for ids after e-0.
  local woken = redis.pcall("XADD", log.wake, "MAXLEN", 1, log.last .. "-0", "last", log.last)
  if type(woken) == "table" and woken.err then
    redis.call("DEL", log.wake)
    redis.call("XADD", log.wake, "MAXLEN", 1, log.last .. "-0", "last", log.last)
  end
end

-- Append bodies[from] ... bodies[from + count - 1]; returns the index before the first of them.
local function append(log, bodies, from, count)
  local noted = redis.call("HMGET", log.meta, "last", "slot")
  local known = index_of(noted[1]) or 0
  local before, is_anew = end_of_log(log, known, count)
  local words = {}
  for i = 1, count do words[2 * i - 1], words[2 * i] = log.prefix .. (before + i), bodies[from + i - 1] end
  -- The first write fails on a server at its memory limit, so that all messages are stored or none.
  redis.call("SET", log.index, before + count)
  if is_anew then forget_past(log) end
  redis.call("MSET", unpack(words))
  log.last = before + count
  note_end(log, not is_anew and noted[2], is_anew and before + 1 or math.max(known + 1, log.first))
  return before
end
