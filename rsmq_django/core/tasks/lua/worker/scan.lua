-- Find the queues that have ready messages. Read-only.
--
--   KEYS[1]  set   names of all queues; their number is -1 when the key has another type
--   KEYS[2]  set   names of paused queues
--   KEYS[3..]  per queue: zset message id -> time it becomes visible (ms)
--   then     perhaps, per queue: hash attributes, counters, bodies, to find queues that were deleted
--   ARGV     per queue: the name under which it is paused
--
-- Returns the server's time (ms), the number of ms until the first message becomes visible in a queue without ready
-- messages (-1: none does), the number of all queues, and the positions of the queues that have ready messages, were
-- deleted or cannot be read, some twice.
--#include parts/clock
local FIRST_KEY, TOGETHER = 3, 20
local next_at, out = nil, {integer(now_ms), -1, tonumber(redis.pcall("SCARD", KEYS[1])) or -1}
local pauses = redis.pcall("SCARD", KEYS[2]) -- an error when the key is not a set: no queue counts as paused then
local any_paused = type(pauses) == "number" and pauses > 0

local function is_paused(position)
  return any_paused and redis.call("SISMEMBER", KEYS[2], ARGV[position]) == 1
end

local function look(n)
  local head = redis.pcall("ZRANGE", KEYS[n], 0, 0, "WITHSCORES")
  local at, position = head.err and 0 or tonumber(head[2]), n - FIRST_KEY + 1
  if at and not is_paused(position) then
    if at <= now_ms then
      out[#out + 1] = position
    elseif not next_at or at < next_at then
      next_at = at
    end
  end
end

-- An empty sorted set does not exist. One EXISTS for all takes a twentieth of the time of a check of each.
local first_settings = FIRST_KEY + #ARGV
for first = FIRST_KEY, first_settings - 1, TOGETHER do
  local last = math.min(first + TOGETHER - 1, first_settings - 1)
  if redis.call("EXISTS", unpack(KEYS, first, last)) > 0 then
    for n = first, last do look(n) end
  end
end
for first = first_settings, #KEYS, TOGETHER do
  local last = math.min(first + TOGETHER - 1, #KEYS)
  if redis.call("EXISTS", unpack(KEYS, first, last)) <= last - first then
    for n = first, last do
      local position = n - first_settings + 1
      if redis.call("EXISTS", KEYS[n]) == 0 and not is_paused(position) then out[#out + 1] = position end
    end
  end
end
if next_at then out[2] = next_at - now_ms end
return out
