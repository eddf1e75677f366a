-- The target of a seek: the last index before the new position, always within the log.
local function target_of(log, kind, value, position)
  local wanted = {
    replay = function() return log.first - 1 end,
    earliest = function() return log.first - 1 end,
    latest = function() return log.last end,
    index = function() return value - 1 end,
    shift = function() return position + value end,
    time = function() return last_before(log, tonumber(value)) end,
    ago = function() return last_before(log, now_ms - value) end,
  }
  return math.min(math.max(wanted[kind](), log.first - 1, 0), log.last)
end

-- The current position of a group, and whether it still has messages in flight, which ends if a plain client moves its
-- cursor back. Changes nothing. An invalid cursor counts as missing.
local function position_now(group, log)
  local text = redis.call("GET", group.cursor)
  local cursor = text and index_of(text)
  if not cursor then return log.first - 1, false end
  local read = tonumber(redis.call("HGET", group.own, "read"))
  local lowest = read and tonumber(redis.call("ZRANGE", group.pending, 0, 0)[1])
  local holds = lowest ~= nil and lowest ~= false and cursor >= lowest - 1
  return holds and math.max(read, cursor) or cursor, holds
end
