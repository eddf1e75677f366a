-- Store the position of a reader of a stream, and remove the entries that all live readers have finished.
--
--   KEYS[1]  stream
--   KEYS[2]  hash  reader -> "<finished id>@<last seen, ms>"; up to a thousand readers are checked
--   ARGV     reader; its last finished id; ms after which a stale reader is ignored; identity of the log that it has read
--
-- A log whose newest id is more than an hour ahead of the clock, which was set back, is removed when it is empty: else all
-- later entries would get its time. The next one begins another log. Not while there are other readers or groups.
--
-- Returns how many entries were removed: none of another log (see parts/log_of).
--#include parts/clock
--#include parts/log_of
local stream, readers = KEYS[1], KEYS[2]
local reader, finished, stale_ms, log = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local AHEAD_MS = 3600000
local found, fact = log_of(stream)
if found ~= log then return 0 end

local function parts(id)
  local ms, number = string.match(id, "^(%d+)-(%d+)")
  return tonumber(ms), tonumber(number)
end

local low_ms, low_number = parts(finished)
local places = redis.call("HGETALL", readers)
local dead, alive = {}, 0
for i = 1, math.min(#places, 2000), 2 do
  local ms, number = parts(places[i + 1])
  local seen_ms = tonumber(string.match(places[i + 1], "@(%d+)$") or 0)
  if places[i] == reader then
    -- Our own previous position does not count.
  elseif not ms or now_ms - seen_ms > stale_ms then
    dead[#dead + 1] = places[i]
  else
    alive = alive + 1
    if ms < low_ms or (ms == low_ms and number < low_number) then low_ms, low_number = ms, number end
  end
end
-- Removals first: they are allowed at the memory limit, and free memory for the position. MINID keeps the id it is given.
local removed = redis.call("XTRIM", stream, "MINID", integer(low_ms) .. "-" .. integer(low_number + 1))
if #dead > 0 then redis.call("HDEL", readers, unpack(dead)) end
if fact and alive == 0 and #fact["groups"] <= 1 and redis.call("XLEN", stream) == 0
  and parts(fact["last-generated-id"]) > now_ms + AHEAD_MS then
  redis.call("UNLINK", stream, readers)
  return removed
end
redis.call("HSET", readers, reader, finished .. "@" .. integer(now_ms))
return removed
