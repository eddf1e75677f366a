-- The server's clock: scores are milliseconds, message ids start with microseconds.
local time = redis.call("TIME")
local now_us = time[1] * 1000000 + time[2]
local now_ms = (now_us - now_us % 1000) / 1000

-- Lua would print a number of this size as 1.79e+15.
local function integer(n) return string.format("%.0f", n) end
