-- Tell how full the event log is.
--
--   KEYS[1]  stream  the event log
--   KEYS[2]  string  how many events could not be written
--
-- Returns the number of entries, how many were ever added (-1: the server does not count them), how many could not be
-- written ("": none), and the ids of the first and the last entry ("": there is none).
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
