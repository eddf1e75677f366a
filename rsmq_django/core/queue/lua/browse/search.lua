-- Scan messages one by one, and return the matching ones. Read-only.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> failure record (JSON)
--   ARGV     score and id of the message before the first one, or "" and ""; highest score to scan, "now" or "+inf";
--            number to scan (1..1000); state ("all", "received" or "new": received before, or never); number of bytes of
--            each body to return; "1" to search for the words in bodies and failure records, too, and not only in ids
--            and names of tasks; the lowest and the highest beginning of an id, "" for any; number of marks, the marks,
--            the words, in lower case
--
-- All words must be found, in any case (parts/has_word); marks always in bodies and failure records. Returns the server's
-- time (ms), the number of scanned messages, score and id of the last one ("": end of the queue), then the seven values
-- of parts/read, records without tracebacks. Errors: QueueNotFound.
--#include parts/clock
--#include parts/has_word
--#include queue/browse/parts/position
--#include queue/browse/parts/read
--#include queue/browse/parts/record
local budget_bytes = 4194304 -- a search reads complete bodies: this limits the time that other clients wait
local messages, settings, failures = KEYS[1], KEYS[2], KEYS[3]
local score, id, last, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local which, longest, everywhere, low, high = ARGV[5], tonumber(ARGV[6]), ARGV[7] == "1", ARGV[8], ARGV[9]
local marks, words = {unpack(ARGV, 11, 10 + tonumber(ARGV[10]))}, {unpack(ARGV, 11 + tonumber(ARGV[10]))}
local function has_each(text, words, has)
  for _, word in ipairs(words) do
    if not has(text, word) then return false end
  end
  return true
end

-- Return the searched text of a message. Without the permission to read bodies, only the name of the task is searched.
local function is_meant(message_id, body)
  local failure, task = redis.call("HGET", failures, message_id) or "", '"task"%s*:%s*"([^"]*)"'
  budget_bytes = budget_bytes - #body - #failure
  local function has_mark(text, mark) return text:find(mark, 1, true) end
  if not has_each((body .. "\n" .. failure):lower(), marks, has_mark) then return false end
  if not everywhere then body, failure = body:match(task) or "", failure:match(task) or "" end
  return has_each((message_id .. "\n" .. body .. "\n" .. failure):lower(), words, has_word)
end

local function fits(message_id, receive_count)
  if which ~= "all" and (which == "received") ~= (receive_count ~= false) then return false end
  local begins = message_id:sub(1, 10):lower()
  if low ~= "" and precedes(begins, low) or high ~= "" and precedes(high, begins) then return false end
  return #words + #marks == 0 or is_meant(message_id, redis.call("HGET", settings, message_id) or "")
end

if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end
if last == "now" then last = integer(now_ms) end
local first = score == "" and 0 or rank_behind(messages, score, id)
count = math.min(count, redis.call("ZCOUNT", messages, "-inf", last) - first)
local out = {integer(now_ms), 0, "", ""}
if count <= 0 then return out end

local found = redis.call("ZRANGE", messages, first, first + count - 1, "WITHSCORES")
for at = 1, #found, 2 do
  out[2], out[3], out[4] = out[2] + 1, found[at + 1], found[at]
  if fits(found[at], redis.call("HGET", settings, found[at] .. ":rc")) then
    read_into(out, settings, nil, {found[at], found[at + 1]}, longest, math.huge)
    out[#out] = head_of(failures, found[at])
    budget_bytes = budget_bytes - #out[#out - 1] - #out[#out]
  end
  if budget_bytes < 0 then break end
end
return out
