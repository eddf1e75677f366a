-- Put messages of a topic on an RSMQ queue, as queue/send does.

-- Returns the bodies that fit, and the others as letters {index, body, deliveries}.
local function sorted_by_size(from, bodies, n, max_size)
  local fitting, dead = {}, {}
  for i = 1, n do
    local body = bodies[i]
    if body and max_size >= 0 and #body > max_size then
      dead[#dead + 1] = {from + i - 1, body, 1}
    elseif body then
      fitting[#fitting + 1] = body
    end
  end
  return fitting, dead
end

local function enqueue(queue, own_delay, bodies)
  if #bodies == 0 then return end
  local visible_ms = integer(now_ms + (given_or_own_ms(queue.delay_unit, own_delay) or 0))
  local scores, fields = {}, {}
  for i, body in ipairs(bodies) do
    local id = message_id(i - 1, ARGV[queue.suffixes_from + i - 1])
    scores[2 * i - 1], scores[2 * i] = visible_ms, id
    fields[2 * i - 1], fields[2 * i] = id, body
  end
  redis.call("ZADD", queue.messages, unpack(scores))
  redis.call("HSET", queue.settings, unpack(fields))
  raise_counter(queue.settings, "totalsent", #bodies)
  if queue.channel ~= "" then redis.pcall("PUBLISH", queue.channel, redis.call("ZCARD", queue.messages)) end
end
