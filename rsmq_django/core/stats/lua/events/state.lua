-- Read the size of the event log.
--
--   KEYS[1]  stream  the event log
--   KEYS[2]  string  number of events that could not be written
--
-- Returns the number of entries, the number of all entries ever added (-1: the server does not count them), the number of
-- events that could not be written ("": none), and the ids of the first and the last entry ("": the log is empty).
local log, dropped = KEYS[1], KEYS[2]

local length = redis.call("XLEN", log)
local first = redis.call("XRANGE", log, "-", "+", "COUNT", 1)[1]
local last = redis.call("XREVRANGE", log, "+", "-", "COUNT", 1)[1]
local added = -1
if redis.call("EXISTS", log) == 1 then
  local subcommand = "STREAM"
  local about = redis.call("XINFO", subcommand, log)
  for i = 1, #about, 2 do
    if about[i] == "entries-added" then added = about[i + 1] end
  end
end
return {length, added, redis.call("GET", dropped) or "", first and first[1] or "", last and last[1] or ""}
