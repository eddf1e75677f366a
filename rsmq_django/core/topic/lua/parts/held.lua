-- Which messages of a group are in flight, and their removal.

-- Return those of these indexes that are, each once.
local function in_flight(group, indexes)
  local held, is_held = {}, {}
  for at, score in ipairs(redis.call("ZMSCORE", group.pending, unpack(indexes))) do
    local index = indexes[at]
    if score and not is_held[index] then held[#held + 1], is_held[index] = index, true end
  end
  return held
end

-- Remove messages from those in flight: they are settled, dead, or deleted. Returns those that were in flight.
local function let_go(group, indexes)
  if #indexes == 0 then return indexes end
  local held = indexes
  if redis.call("ZREM", group.due, unpack(indexes)) < #indexes then held = in_flight(group, indexes) end
  redis.call("HDEL", group.counts, unpack(indexes))
  redis.call("ZREM", group.pending, unpack(indexes))
  return held
end
