-- A phantom is an id without a body: what stays of a message when another client deletes or sends it in two steps and
-- dies between them. Take one out of a queue and remember that it was there.
--   phantoms: hash; `removed` counts them all, 0..99 are a ring of the last ones, each "<removed at (ms)> <id>"
local REMEMBERED = 100

local function quarantine(messages, settings, phantoms, id)
  -- The removals come first: a server at its memory limit then allows the rest.
  redis.call("ZREM", messages, id)
  redis.call("HDEL", settings, id .. ":rc", id .. ":fr")
  local number = raise_counter(phantoms, "removed", 1)
  redis.call("HSET", phantoms, number % REMEMBERED, integer(now_ms) .. " " .. id)
end
