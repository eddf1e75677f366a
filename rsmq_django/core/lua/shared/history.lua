-- What a worker wants to know beside the messages.

-- How often a message was given back unused and how often its process died: "0" when it is new, else two numbers.
local function history(deliveries, id, receive_count)
  if receive_count == "1" then return "0" end
  local counts = redis.call("HMGET", deliveries, id, id .. ":crashes")
  return (counts[1] or "0") .. " " .. (counts[2] or "0")
end

-- The ms until the next message of a queue becomes visible, nil for an empty queue.
local function ms_until_next(messages)
  local head = redis.call("ZRANGE", messages, 0, 0, "WITHSCORES")[2]
  return head and math.max(0, tonumber(head) - now_ms)
end
