-- Remove a cancelled message from the record of a worker's leases: it was already removed from its queue.
--
--   KEYS[1]  hash  messages leased by the worker (parts/strike)
--   KEYS[2], KEYS[3]  stream and string: the event log, and how many events could not be written
--   ARGV     strikes; events (parts/events)
--
-- Returns how many strikes removed something; 0: an earlier call, whose reply was lost, has written the event.
--#include parts/strike
--#include parts/events
local holds, log, dropped = KEYS[1], KEYS[2], KEYS[3]

local _, removed_count = strike(holds, 1)
if removed_count > 0 then log_event(log, dropped, 1, "cancelled") end
return removed_count
