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

-- Append the messages that have a body to `ids` and `values`; returns how many of `found` are still in the queue.
local function keep_whole(messages, settings, phantoms, found, ids, values)
  local stored, left, n = read_messages(settings, found), #found, #ids
  for i, id in ipairs(found) do
    if stored[3 * i - 2] then
      n = n + 1
      ids[n] = id
      values[3 * n - 2], values[3 * n - 1], values[3 * n] = stored[3 * i - 2], stored[3 * i - 1], stored[3 * i]
    elseif tonumber(redis.call("ZSCORE", messages, id)) <= now_ms - PHANTOM_GRACE_MS then
      quarantine(messages, settings, phantoms, id)
      left = left - 1
    end
  end
  return left
end

-- Return ids of what is ready. Into `due`, when there is such a table, goes since when each of them has been.
local function find_ready(messages, now_text, seen, wanted, due)
  if not due then return redis.call("ZRANGEBYSCORE", messages, "-inf", now_text, "LIMIT", seen, wanted) end
  local ids, pairs_found = {}, redis.call("ZRANGEBYSCORE", messages, "-inf", now_text, "WITHSCORES", "LIMIT", seen, wanted)
  for i = 1, #pairs_found / 2 do
    ids[i], due[pairs_found[2 * i - 1]] = pairs_found[2 * i - 1], pairs_found[2 * i]
  end
  return ids
end

local function hand_out(messages, settings, phantoms, count, visible_ms, give, due)
  local ids, values, seen, now_text = {}, {}, 0, integer(now_ms)
  for _ = 1, MAX_LOOKS do
    local wanted = count - #ids
    local found = find_ready(messages, now_text, seen, wanted, due)
    if #found > 0 then seen = seen + keep_whole(messages, settings, phantoms, found, ids, values) end
    if #ids == count or #found < wanted then break end
  end
  -- All leases at the end: with a visibility timeout of 0 another look would find the same messages again.
  if #ids > 0 then hold(messages, settings, ids, values, visible_ms, give) end
  return #ids
end
