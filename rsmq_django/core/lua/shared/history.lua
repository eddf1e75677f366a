-- What a worker wants to know beside the messages.

-- What became of a message before: receive count, how often it was given back unused and how often its process died,
-- first receive.
local function history(deliveries, id, receive_count, first_received)
  local counts = receive_count == "1" and {} or redis.call("HMGET", deliveries, id, id .. ":crashes")
  return table.concat({receive_count, counts[1] or "0", counts[2] or "0", first_received}, " ")
end

-- The ms until the next message of a queue becomes visible, nil for an empty queue.
local function ms_until_next(messages)
  local head = redis.call("ZRANGE", messages, 0, 0, "WITHSCORES")[2]
  return head and math.max(0, tonumber(head) - now_ms)
end
