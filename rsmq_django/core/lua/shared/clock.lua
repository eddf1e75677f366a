-- The server's clock: scores are milliseconds, message ids start with microseconds.
local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- Lua would print a number of this size as 1.79e+15.
local function integer(n) return string.format("%.0f", n) end
