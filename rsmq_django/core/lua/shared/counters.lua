-- What one of a queue's counters becomes. One that another client left as no whole number, or as one so large that
-- nobody can raise it much longer, begins anew.
local MOST_DIGITS = 15

local function raised(stored, by)
  local digits = stored and #stored <= MOST_DIGITS and stored:match("^%d+$")
  return string.format("%.0f", (tonumber(digits) or 0) + by)
end

-- HINCRBY takes three times as long as these two together, and fails where there is no number.
local function raise_counter(settings, field, by)
  redis.call("HSET", settings, field, raised(redis.call("HGET", settings, field), by))
end
