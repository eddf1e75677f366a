-- How many hidden messages of a queue were received before: these are in flight, or due for a retry; the others are delayed.
-- Counted when up to `most` are hidden, else estimated from `most` messages. Leases end soon and delays late, so half of
-- the sample are the messages that become visible first; the other half is spread over the rest.
local function count_received(settings, ids)
  for n, id in ipairs(ids) do ids[n] = id .. ":rc" end
  local received = 0
  for _, count in ipairs(#ids > 0 and redis.call("HMGET", settings, unpack(ids)) or {}) do
    if count then received = received + 1 end
  end
  return received
end

--   first, hidden: the rank of the first hidden message, and the number of hidden messages
-- Returns how many were received, and 1 when that is an estimate.
local function received_among(messages, settings, first, hidden, most)
  if hidden == 0 then return 0, 0 end
  if hidden <= most then
    return count_received(settings, redis.call("ZRANGE", messages, first, first + hidden - 1)), 0
  end
  local near = math.floor(most / 2)
  local received = count_received(settings, redis.call("ZRANGE", messages, first, first + near - 1))
  local far, looks, ids = hidden - near, most - near, {}
  for n = 1, looks do
    local rank = first + near + math.floor((n - 1) * far / looks)
    ids[n] = redis.call("ZRANGE", messages, rank, rank)[1]
  end
  return received + math.floor(count_received(settings, ids) * far / looks + 0.5), 1
end
