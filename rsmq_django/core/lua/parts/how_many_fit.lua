-- How many messages of a queue fit into one reply: `now_text` and MOST_BYTES are those of tasks/worker/fetch.
-- A queue of RSMQ has a limit, and no body of it is long; without one, bodies may be.
local RSMQ_LIMIT = 65536
local function may_be_long(max_size)
  local limit = tonumber(max_size or nil)
  return not limit or limit < 0 or limit > RSMQ_LIMIT
end

-- Return how many of the `most` next messages fit, at least one.
local function how_many_fit(messages, settings, most)
  local bytes = 0
  for n, id in ipairs(redis.call("ZRANGEBYSCORE", messages, "-inf", now_text, "LIMIT", 0, most)) do
    bytes = bytes + redis.call("HSTRLEN", settings, id)
    if bytes > MOST_BYTES and n > 1 then return n - 1 end
  end
  return most
end
