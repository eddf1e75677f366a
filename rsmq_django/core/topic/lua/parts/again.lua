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

-- Choose up to `wanted` of the messages that are due, and as many that are dead: these may have to stay, and must not
-- block the others. Returns their letters, without bodies, and the keys of the bodies.
local function choose(due, counts, prefix, wanted, most)
  local letters, keys, room = {}, {}, {[false] = wanted, [true] = wanted}
  for i, index in ipairs(due) do
    local deliveries, released = deliveries_of(counts[i])
    local is_dead = most > 0 and deliveries - released >= most
    if room[is_dead] > 0 then
      room[is_dead], keys[#keys + 1] = room[is_dead] - 1, prefix .. index
      letters[#keys] = {tonumber(index), false, is_dead and deliveries or deliveries + 1, released, is_dead}
    end
  end
  return letters, keys
end

-- Returns up to `wanted` messages due for redelivery, each {index, body, deliveries with this one, released ones};
-- messages with `most` deliveries that count; and the indexes of deleted messages.
local function find_due(group, log, wanted, most)
  local alive, dead, gone = {}, {}, {}
  local due = redis.call(
    "ZRANGEBYSCORE", group.due, "-inf", integer(now_ms), "LIMIT", 0, math.max(wanted, MOST_IN_ORDER))
  if #due == 0 then return alive, dead, gone end
  table.sort(due, function(a, b) return tonumber(a) < tonumber(b) end)
  local letters, keys = choose(due, redis.call("HMGET", group.counts, unpack(due)), log.prefix, wanted, most)
  for i, body in ipairs(redis.call("MGET", unpack(keys))) do
    local letter = letters[i]
    letter[2] = body
    local kind = not body and gone or letter[5] and dead or alive
    kind[#kind + 1] = body and letter or letter[1]
  end
  return alive, dead, gone
end
