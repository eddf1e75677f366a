-- Hand out up to `count` ready messages of one queue, oldest first, and return how many there were.
--
-- A phantom (an id without a body) is removed when it is five seconds overdue; a younger one is left alone, because a
-- client that sends in two steps may be between them. Either way the next message is delivered in the same call.
local PHANTOM_GRACE_MS = 5000
local MAX_LOOKS = 100

local function read_messages(settings, ids)
  local fields = {}
  for i, id in ipairs(ids) do
    fields[3 * i - 2], fields[3 * i - 1], fields[3 * i] = id, id .. ":rc", id .. ":fr"
  end
  return redis.call("HMGET", settings, unpack(fields))
end

local function drop_phantom(messages, settings, id)
  if tonumber(redis.call("ZSCORE", messages, id)) > now_ms - PHANTOM_GRACE_MS then return false end
  redis.call("ZREM", messages, id)
  redis.call("HDEL", settings, id .. ":rc", id .. ":fr")
  return true
end

-- Separate the messages that have a body from the phantoms; returns ids, values and how many phantoms were left alone.
local function without_phantoms(messages, settings, ids, values)
  local whole, whole_values, left_alone = {}, {}, 0
  for i, id in ipairs(ids) do
    if values[3 * i - 2] then
      local n = #whole
      whole[n + 1] = id
      whole_values[3 * n + 1] = values[3 * i - 2]
      whole_values[3 * n + 2] = values[3 * i - 1]
      whole_values[3 * n + 3] = values[3 * i]
    elseif not drop_phantom(messages, settings, id) then
      left_alone = left_alone + 1
    end
  end
  return whole, whole_values, left_alone
end

local function hand_out(messages, settings, count, visible_ms, give)
  local left, skip = count, 0
  for _ = 1, MAX_LOOKS do
    local found = redis.call("ZRANGEBYSCORE", messages, "-inf", integer(now_ms), "LIMIT", skip, left)
    if #found == 0 then break end
    local ids, values, left_alone = without_phantoms(messages, settings, found, read_messages(settings, found))
    if #ids > 0 then hold(messages, settings, ids, values, visible_ms, give) end
    left, skip = left - #ids, skip + left_alone
    -- With a visibility timeout of 0 a second look would find the same messages again.
    if left == 0 or #ids == #found or (visible_ms and visible_ms <= now_ms) then break end
  end
  return count - left
end
