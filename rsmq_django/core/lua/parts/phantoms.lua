-- A phantom is an id without a body: the rest of a message when another client deletes or sends it in two steps and
-- stops between them. Remove up to 1000 of them from a queue and remember them.
--   phantoms: hash; `removed` counts them all, 0..99 are a ring of the last ones, each "<removed at (ms)> <id>"
local REMEMBERED = 100

local function quarantine(messages, settings, phantoms, ids)
  if #ids == 0 then return end
  local fields, ring = {}, {}
  for i, id in ipairs(ids) do fields[2 * i - 1], fields[2 * i] = id .. ":rc", id .. ":fr" end
  -- The removals come first: a server at its memory limit then accepts the other writes.
  redis.call("ZREM", messages, unpack(ids))
  redis.call("HDEL", settings, unpack(fields))
  local number = raise_counter(phantoms, "removed", #ids)
  for i = math.max(1, #ids - REMEMBERED + 1), #ids do
    ring[#ring + 1], ring[#ring + 2] = (number - #ids + i) % REMEMBERED, integer(now_ms) .. " " .. ids[i]
  end
  redis.call("HSET", phantoms, unpack(ring))
end
