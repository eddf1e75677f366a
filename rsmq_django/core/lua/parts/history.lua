-- Additional data of messages for a worker.

--#include parts/whole
-- The history of a message: receive count, number of releases, number of crashes, first receive.
local function history(deliveries, id, receive_count, first_received)
  local counts = receive_count == "1" and {} or redis.call("HMGET", deliveries, id, id .. ":crashes")
  return table.concat({receive_count, whole(counts[1]), whole(counts[2]), first_received}, " ")
end

-- The ms until the next message of a queue becomes visible, nil for an empty queue.
local function ms_until_next(messages)
  local head = redis.call("ZRANGE", messages, 0, 0, "WITHSCORES")[2]
  return head and math.max(0, tonumber(head) - now_ms)
end

-- The time since a message became ready (ms); -1 when a client stored seconds or a similar value instead.
local LONGEST_WAIT_MS = 315360000000 -- ten years

local function waited_ms(due)
  local waited = now_ms - tonumber(due)
  return waited < LONGEST_WAIT_MS and math.floor(waited) or -1
end
