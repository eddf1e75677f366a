-- Return the new value of a counter. A counter that is not a whole number, or is near the largest possible number, restarts
-- at 0: another client has written it.
local LARGEST_COUNT = 1e14 -- Lua writes smaller whole numbers with all their digits

local function raised(stored, by)
  local count = tonumber(stored)
  if not count or count < 0 or count + by >= LARGEST_COUNT or count % 1 ~= 0 then count = 0 end
  return count + by .. ""
end
