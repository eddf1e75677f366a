-- Indexes, which any client may have written, and the bounds of a log.
--
-- A log is a table of keys: index, meta, time, wake, headers, keys, latest, stale, tombstones, and `prefix`, which
-- the number of a message is appended to. The keys of messages are the only ones that scripts make: which number
-- comes next is known here alone. All keys of a topic share a slot, or it cannot be used on a cluster at all.

-- A missing key is 0; a value that is not a plain number, or that Lua would print rounded, is nil.
local function index_of(text)
  if not text then return 0 end
  return #text <= 14 and text:find("^%d+$") and tonumber(text) or nil
end

-- The error for a key with an invalid value, of which only the start is shown.
local function broken(field, text)
  return redis.error_reply("RSMQ TopicBroken " .. field .. " " .. text:sub(1, 40):gsub("[%c\127-\255]", "?"))
end

-- Read the last index and the lowest stored one. Returns an error reply if the last one is invalid.
local function open_log(log)
  local text = redis.call("GET", log.index)
  log.last = index_of(text)
  if not log.last then return broken("nextIndex", text) end
  log.first = math.max(1, index_of(redis.call("HGET", log.meta, "first")) or 1)
end

local function message_keys(log, from, to)
  local keys, prefix, before = {}, log.prefix, from - 1
  for i = 1, to - before do keys[i] = prefix .. (before + i) end
  return keys
end
