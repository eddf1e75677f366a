-- Read the messages behind a position, at most LOOKS indexes at a time. An index without a message is a hole: it was
-- compacted, it expired, or another client lost it.
local LOOKS = 1000
local STEP = 100

-- Nearly always all messages are there: then the server's own list is the answer, and nothing is copied.
local function first_part(log, position, wanted)
  local n = math.min(log.last - position, wanted)
  if n <= 0 then return {}, 0 end
  local bodies = redis.call("MGET", unpack(message_keys(log, position + 1, position + n)))
  for i = 1, n do
    if not bodies[i] then return {}, 0 end
  end
  return bodies, n
end

-- Returns the index of the first message, the bodies from there on (false for a hole), their number, the position
-- behind them, and the number of holes.
local function collect(log, position, wanted)
  local bodies, n = first_part(log, position, wanted)
  local from, found, looked, holes = position + 1, n, n, 0
  position = position + n
  while position < log.last and found < wanted and looked < LOOKS do
    local step = math.min(log.last - position, LOOKS - looked, looked == 0 and wanted or math.max(wanted - found, STEP))
    local part = redis.call("MGET", unpack(message_keys(log, position + 1, position + step)))
    for i = 1, step do
      local body = part[i]
      position = position + 1
      if body then
        found, n = found + 1, n + 1
        bodies[n] = body
        if found == wanted then break end
      else
        holes = holes + 1
        if found == 0 then from = position + 1 else n = n + 1 bodies[n] = false end
      end
    end
    looked = looked + step
  end
  return from, bodies, n, position, holes
end

local function has_extras(log) return redis.call("EXISTS", log.keys, log.headers) > 0 end

-- Append the keys of messages and their headers, when the topic has any: a column of each.
local function append_extras(reply, log, indexes)
  if #indexes == 0 or not has_extras(log) then return reply end
  local n = #reply
  local keys = redis.call("HMGET", log.keys, unpack(indexes))
  local headers = redis.call("HMGET", log.headers, unpack(indexes))
  for i = 1, #indexes do reply[n + i], reply[n + #indexes + i] = keys[i], headers[i] end
  return reply
end

local function numbers(from, count)
  local list = {}
  for i = 1, count do list[i] = from + i - 1 end
  return list
end
