-- Store the position of a reader of a stream, and remove the entries that all live readers have finished.
--
--   KEYS[1]  stream
--   KEYS[2]  hash  reader -> "<finished id>@<last seen, ms>"; up to a thousand readers are checked
--   ARGV     reader; its last finished id; ms after which a stale reader is ignored; identity of the log that it has read
--
-- Returns how many entries were removed: none of another log (see parts/log_of).
--#include parts/clock
--#include parts/log_of
local stream, readers = KEYS[1], KEYS[2]
local reader, finished, stale_ms, log = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
if log_of(stream) ~= log then return 0 end

local function parts(id)
  local ms, number = string.match(id, "^(%d+)-(%d+)")
  return tonumber(ms), tonumber(number)
end

local low_ms, low_number = parts(finished)
local places = redis.call("HGETALL", readers)
local dead = {}
for i = 1, math.min(#places, 2000), 2 do
  local ms, number = parts(places[i + 1])
  local seen_ms = tonumber(string.match(places[i + 1], "@(%d+)$") or 0)
  if places[i] == reader then
    -- Our own previous position does not count.
  elseif not ms or now_ms - seen_ms > stale_ms then
    dead[#dead + 1] = places[i]
  elseif ms < low_ms or (ms == low_ms and number < low_number) then
    low_ms, low_number = ms, number
  end
end
-- Removals first: they are allowed at the memory limit, and free memory for the position. MINID keeps the id it is given.
local removed = redis.call("XTRIM", stream, "MINID", integer(low_ms) .. "-" .. integer(low_number + 1))
if #dead > 0 then redis.call("HDEL", readers, unpack(dead)) end
redis.call("HSET", readers, reader, finished .. "@" .. integer(now_ms))
return removed
