-- Find positions in a queue's order: by score, and by id, byte for byte, among equal scores.

-- Lua's own "<" follows the server's locale, where "a" may come before "B"; a sorted set compares bytes.
local function precedes(a, b)
  for i = 1, math.min(#a, #b) do
    local left, right = a:byte(i), b:byte(i)
    if left ~= right then return left < right end
  end
  return #a < #b
end

-- Return the rank of the first message after (score, id), whether or not that message still exists. A stored rank would
-- be wrong: each message that leaves the queue moves all later ones.
local function rank_behind(messages, score, id)
  local low = redis.call("ZCOUNT", messages, "-inf", "(" .. score)
  local high = redis.call("ZCOUNT", messages, "-inf", score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if precedes(id, redis.call("ZRANGE", messages, middle, middle)[1]) then high = middle else low = middle + 1 end
  end
  return low
end
