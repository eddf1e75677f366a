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

local function is_foreign(reply) return type(reply) == "table" and reply.err:find("WRONGTYPE", 1, true) end

-- Return the one of these keys that another program uses: it has another type. A look costs a publish five per cent.
local function foreign_key(hashes, zsets)
  for _, hash in ipairs(hashes) do
    if is_foreign(redis.pcall("HGET", hash, "")) then return hash end
  end
  for _, zset in ipairs(zsets) do
    if is_foreign(redis.pcall("ZCARD", zset)) then return zset end
  end
end

-- Read the last index, the lowest stored one and the newest slot. Returns an error reply if the last one is invalid.
local function open_log(log)
  local text = redis.call("GET", log.index)
  log.last = index_of(text)
  if not log.last then return broken("nextIndex", text) end
  local meta = redis.pcall("HMGET", log.meta, "first", "slot")
  if meta.err then return is_foreign(meta) and broken("key", log.meta) or meta end
  log.noted_first, log.slot = math.max(1, index_of(meta[1]) or 1), meta[2]
  -- Behind the end it is that of a log that was deleted: a plain client has begun another one, or its index was lost.
  log.first = log.noted_first <= log.last + 1 and log.noted_first or 1
end

local function message_keys(log, from, to)
  local keys, prefix, before = {}, log.prefix, from - 1
  for i = 1, to - before do keys[i] = prefix .. (before + i) end
  return keys
end
