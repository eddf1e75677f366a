-- What a counter becomes. One that another client left as no whole number, or as one so large that
-- nobody can raise it much longer, begins anew.
local LARGEST_COUNT = 1e14 -- Lua writes smaller whole numbers with all their digits

local function raised(stored, by)
  local count = tonumber(stored)
  if not count or count < 0 or count >= LARGEST_COUNT or count % 1 ~= 0 then count = 0 end
  return count + by .. ""
end
