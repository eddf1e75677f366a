-- A time-out or delay in ms: the one that the caller gave, or the queue's own. Instead of a number the caller gives the
-- unit of the stored one: "s", as RSMQ has it, or "ms", as some clients store it. nil when what is stored is no time:
-- a score that is no number would be refused after the message was taken out.
local MAX_MS = 1e15

local function given_or_own_ms(given, stored)
  local ms_per_unit = given == "s" and 1000 or given == "ms" and 1
  if not ms_per_unit then return tonumber(given) end
  local number = tonumber(stored)
  local own_ms = number and number * ms_per_unit
  return own_ms and own_ms >= 0 and own_ms < MAX_MS and own_ms or nil
end
