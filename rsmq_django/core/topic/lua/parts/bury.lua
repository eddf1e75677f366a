-- The dead-letter topic of a topic.

-- Check whether it can store messages. Returns an error reply if not: messages must not be half moved.
local function open_dead_letters(target)
  local hashes = {target.meta, target.headers, target.keys, target.latest}
  local key = foreign_key(hashes, {target.time, target.stale, target.tombstones})
  local text = redis.pcall("GET", target.index)
  if type(text) == "table" or not key and open_log(target) then key = target.index end
  return key and redis.error_reply("RSMQ TopicBroken deadLetters " .. key)
end

-- Move messages with too many deliveries to the dead-letter topic, with their origin in the headers.
-- `dead` lists {index, body, deliveries}; `origin` is the beginning of a JSON object, made by the caller.
local function bury(group, log, target, origin, dead)
  if #dead == 0 then return end
  local indexes, bodies = {}, {}
  for i, letter in ipairs(dead) do indexes[i], bodies[i] = letter[1], letter[2] end
  let_go(group, indexes)
  local keys = redis.call("HMGET", log.keys, unpack(indexes))
  local headers = redis.call("HMGET", log.headers, unpack(indexes))
  local before = append(target, bodies, 1, #bodies)
  for i, letter in ipairs(dead) do
    local facts = origin .. ', "index": "' .. letter[1] .. '", "deliveries": "' .. letter[3] .. '"'
    local own = headers[i] and headers[i]:sub(2) or "}"
    redis.call("HSET", target.headers, before + i, facts .. (own == "}" and own or ", " .. own))
    if keys[i] then redis.call("HSET", target.keys, before + i, keys[i]) end
  end
  raise_counter(group.own, "dead", #dead)
end
