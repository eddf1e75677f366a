-- The position of a group. Plain clients move its cursor, too: they delete it to replay, and increment it to read.
local MAX_GROUPS = 1000

local function new_position(group, log, start)
  if start == "error" then return nil, redis.error_reply("RSMQ GroupNotFound") end
  if redis.call("ZCARD", group.groups) >= MAX_GROUPS then
    return nil, redis.error_reply("RSMQ TooManyGroups " .. MAX_GROUPS)
  end
  local position = start == "latest" and log.last or math.min(log.first - 1, log.last)
  note_consumer(group, "")
  forget_held(group) -- receipts of a deleted group of the same name are invalid
  move_cursor(group, position)
  return position
end

-- The last delivered index, while messages are in flight.
local function position_of_holders(group, cursor, read)
  local lowest = tonumber(redis.call("ZRANGE", group.pending, 0, 0)[1])
  -- Moved back by another client, or the messages in flight are unknown: they are delivered again.
  if not lowest or cursor < lowest - 1 then
    forget_held(group)
    return cursor
  end
  return math.max(read, cursor)
end

-- Returns the last delivered index of the group and the number of missed messages, or nil and an error reply.
local function locate(group, log, start, on_reset)
  local text, read = redis.call("GET", group.cursor), tonumber(redis.call("HGET", group.own, "read"))
  local position, failure = index_of(text), nil
  if not position then return nil, broken("cursor", text) end
  if not text and not redis.call("ZSCORE", group.groups, group.name) then
    position, failure = new_position(group, log, start)
    if failure then return nil, failure end
  elseif not text then -- the cursor was deleted: replay
    forget_held(group)
    position = log.first - 1
  elseif read then
    position = position_of_holders(group, position, read)
  end
  if position > log.last then
    if on_reset == "error" then return nil, redis.error_reply("RSMQ TopicReset " .. position .. " " .. log.last) end
    forget_held(group)
    position = on_reset == "latest" and log.last or math.min(log.first - 1, log.last)
    move_cursor(group, position)
  end
  local skipped = math.max(0, log.first - 1 - position)
  return position + skipped, skipped
end
