-- Append messages to a log, note the time (topic/times), wake all readers.
local LOOKED_AT = 1000

-- Open a log (topic/index) to append to it, with keys or headers (topic/attach) or without. Returns an error reply if a
-- write would fail after messages were stored: they would be published again.
local function open_to_append(log, will_attach)
  local failure = open_log(log)
  if failure then return failure end
  local hashes = will_attach and {log.headers, log.keys, log.latest} or {}
  local zsets = will_attach and {log.stale, log.tombstones} or {}
  if new_slot(log.slot) then zsets[#zsets + 1] = log.time end
  local key = foreign_key(hashes, zsets)
  return key and broken("key", key)
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
  redis.call("HSET", log.meta, "last", log.last)
  local slot = new_slot(newest_slot)
  if slot then
    redis.call("ZADD", log.time, slot, first_new)
    redis.call("HSET", log.meta, "slot", slot)
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
  if is_anew then forget_past(log) else log.first = log.noted_first end
  redis.call("MSET", unpack(words))
  log.last = before + count
  note_end(log, not is_anew and noted[2], is_anew and before + 1 or math.max(known + 1, log.first))
  return before
end
