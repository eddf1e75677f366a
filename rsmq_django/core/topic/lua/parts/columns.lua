-- The reply of topic/lease: facts, then a column for each attribute of the messages.
local function in_columns(reply, log, letters)
  local at, count, indexes = #reply, #letters, {}
  for i, letter in ipairs(letters) do
    indexes[i] = letter[1]
    reply[at + i], reply[at + 2 * count + i] = letter[1], letter[2]
    reply[at + count + i] = counted(letter[3], letter[4])
  end
  return append_extras(reply, log, indexes)
end

local function ms_until_due(group)
  local next_due = redis.call("ZRANGE", group.due, 0, 0, "WITHSCORES")[2]
  return next_due and math.max(0, tonumber(next_due) - now_ms) or -1
end
