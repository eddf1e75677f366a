-- A timeout or delay in ms: given by the caller, or the queue's own. To use the queue's own, the caller passes its unit
-- instead of a number: "s", as in RSMQ, or "ms", as some clients store it. nil when the stored value is not a time: a score
-- that is not a number would be refused after the message was removed.
local MAX_MS = 1e15

local function given_or_own_ms(given, stored)
  local ms_per_unit = given == "s" and 1000 or given == "ms" and 1
  if not ms_per_unit then return tonumber(given) end
  local number = tonumber(stored)
  local own_ms = number and number * ms_per_unit
  return own_ms and own_ms >= 0 and own_ms < MAX_MS and own_ms or nil
end
