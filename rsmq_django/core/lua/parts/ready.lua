-- Find messages of one queue that are ready, oldest first.
--
-- A phantom (an id without a body) is removed when it is five seconds overdue; a younger one is kept, because a client that
-- sends in two steps may be between them.
local PHANTOM_GRACE_MS = 5000

-- Return the ready messages: ids, the times when they became ready (due, only with `with_due`), and two fields and values of
-- each: body, receive count.
local function find_ready(messages, settings, skip, count, with_due)
  local now_text, reply, n, ids, due, fields = integer(now_ms), nil, 0, {}, {}, {}
  if with_due then
    reply = redis.call("ZRANGEBYSCORE", messages, "-inf", now_text, "WITHSCORES", "LIMIT", skip, count)
  else
    reply = redis.call("ZRANGEBYSCORE", messages, "-inf", now_text, "LIMIT", skip, count)
  end
  for at = 1, #reply, with_due and 2 or 1 do
    local id = reply[at]
    n = n + 1
    ids[n] = id
    if with_due then due[n] = reply[at + 1] end
    fields[2 * n - 1] = id
    fields[2 * n] = id .. ":rc"
  end
  local values = n > 0 and redis.call("HMGET", settings, unpack(fields)) or {}
  return {ids = ids, due = due, fields = fields, values = values}
end

local function move(found, from, to)
  local ids, due, fields, values = found.ids, found.due, found.fields, found.values
  ids[to], due[to] = ids[from], due[from]
  for k = 0, 1 do fields[2 * to - k], values[2 * to - k] = fields[2 * from - k], values[2 * from - k] end
end

-- Leave out ids without a body; returns how many of `found` are still in the queue.
local function drop_phantoms(messages, settings, phantoms, found)
  local ids, values, whole, all, old = found.ids, found.values, 0, #found.ids, {}
  for i = 1, all do
    if values[2 * i - 1] then
      whole = whole + 1
      if whole < i then move(found, i, whole) end
    elseif tonumber(redis.call("ZSCORE", messages, ids[i])) <= now_ms - PHANTOM_GRACE_MS then
      old[#old + 1] = ids[i]
    end
  end
  for i = whole + 1, all do move(found, all + i, i) end -- from after the end, where the table is empty
  quarantine(messages, settings, phantoms, old)
  return all - #old
end
