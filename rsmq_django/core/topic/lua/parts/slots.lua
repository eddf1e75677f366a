-- The time index by rank: its entries are in the order of their indexes as well as of their times.

-- The rank of the slot that a message was published in, -1 when it is older than the oldest slot.
local function slot_rank(slots, index)
  local low, high = 0, redis.call("ZCARD", slots) - 1
  for _ = 1, 50 do
    if low > high then break end
    local middle = math.floor((low + high) / 2)
    local first = tonumber(redis.call("ZRANGE", slots, middle, middle)[1])
    if first <= index then low = middle + 1 else high = middle - 1 end
  end
  return high
end

-- When the slot of a message began (ms), -1 when that is not known.
local function slot_ms(slots, index)
  local rank = slot_rank(slots, index)
  return rank >= 0 and tonumber(redis.call("ZRANGE", slots, rank, rank, "WITHSCORES")[2]) or -1
end
