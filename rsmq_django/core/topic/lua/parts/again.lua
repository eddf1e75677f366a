-- Redelivery of messages that were not acknowledged in time.

-- A field of `counts`: the deliveries of a message, and after a colon how many of them were released unused. Numbers that
-- only another program can have written count as the first delivery.
local MOST_DELIVERIES = 1e12
local function deliveries_of(text)
  local deliveries, released = (text or "1"):match("^(%d+):?(%d*)$")
  deliveries, released = tonumber(deliveries) or 1, tonumber(released) or 0
  if deliveries < 1 or deliveries > MOST_DELIVERIES or released > deliveries then return 1, 0 end
  return deliveries, released
end

local function counted(deliveries, released)
  return released > 0 and deliveries .. ":" .. released or deliveries
end

-- Record messages in flight until `due_ms`. Removals first, so that it works at the memory limit.
local function hold(group, letters, due_ms)
  if #letters == 0 then return end
  local indexes, pending, due, counts, at = {}, {}, {}, {}, integer(due_ms)
  for i, letter in ipairs(letters) do
    indexes[i] = letter[1]
    pending[2 * i - 1], pending[2 * i], due[2 * i - 1], due[2 * i] = letter[1], letter[1], at, letter[1]
    if letter[3] > 1 then counts[#counts + 1], counts[#counts + 2] = letter[1], counted(letter[3], letter[4]) end
  end
  redis.call("ZREM", group.due, unpack(indexes))
  redis.call("ZADD", group.due, unpack(due))
  redis.call("ZADD", group.pending, unpack(pending))
  if #counts > 0 then redis.call("HSET", group.counts, unpack(counts)) end
end

local MOST_IN_ORDER = 200 -- messages that are due at the same time are sorted as texts
-- Returns up to `wanted` messages due for redelivery, each {index, body, deliveries with this one, released ones};
-- messages with more than `most` deliveries that count; and the indexes of deleted messages.
local function find_due(group, log, wanted, most)
  local alive, dead, gone = {}, {}, {}
  local due = redis.call(
    "ZRANGEBYSCORE", group.due, "-inf", integer(now_ms), "LIMIT", 0, math.max(wanted, MOST_IN_ORDER))
  if #due == 0 then return alive, dead, gone end
  table.sort(due, function(a, b) return tonumber(a) < tonumber(b) end)
  for at = #due, wanted + 1, -1 do due[at] = nil end
  local keys = {}
  for i, index in ipairs(due) do keys[i] = log.prefix .. index end
  local bodies, counts = redis.call("MGET", unpack(keys)), redis.call("HMGET", group.counts, unpack(due))
  for i, index in ipairs(due) do
    local deliveries, released = deliveries_of(counts[i])
    local letter = {tonumber(index), bodies[i], deliveries + 1, released}
    if not bodies[i] then
      gone[#gone + 1] = index
    elseif most > 0 and letter[3] - released > most then
      letter[3] = letter[3] - 1
      dead[#dead + 1] = letter
    else
      alive[#alive + 1] = letter
    end
  end
  return alive, dead, gone
end
