-- Whether a limit has a free slot, and which message is next: a part of tasks/limits/take, whose variables this uses.
--#include tasks/limits/parts/reliable
-- Return when the lease of a slot's message expires, for an unknown queue when it may expire; nil when it has expired.
local function lease_of(holder, text)
  local count_then, until_ms, name = text:match("^(%d+) (%d+) (.+)$")
  local queue = queues[name]
  if not queue then
    if tonumber(until_ms) <= now_ms and not is_unknown[name] then is_unknown[name], unknown[#unknown + 1] = true, name end
    return tonumber(until_ms), name
  end
  if name:sub(1, 9) == "reliable:" then
    local ends_ms = lease_in_reliable_queue(queue, holder, name, count_then)
    return ends_ms, name, count_then
  end
  local visible_ms = tonumber(redis.call("ZSCORE", queue.messages, holder) or 0)
  if visible_ms <= now_ms or redis.call("HGET", queue.settings, holder .. ":rc") ~= count_then then return nil end
  return visible_ms, name, count_then
end

local function free_places(key, most)
  local places = redis.call("HGETALL", key)
  for n = 1, #places, 2 do
    local holder, text = places[n], places[n + 1]
    local until_ms = tonumber(text:match("^%d+ (%d+) ."))
    local is_overdue = until_ms and until_ms <= now_ms
    if not until_ms then
      redis.call("HDEL", key, holder) -- no worker wrote it: it belongs to no message
    elseif is_overdue or most <= FEW then
      local visible_ms, name, count_then = lease_of(holder, text)
      if not visible_ms then
        redis.call("HDEL", key, holder)
      elseif is_overdue and count_then then
        redis.call("HSET", key, holder, count_then .. " " .. integer(visible_ms) .. " " .. name)
      end
    end
  end
end

-- Return the time until a slot is free: 0 now, nil unknown.
local lead_ms = {}
function lead_ms.concurrency(key, most)
  if redis.call("HEXISTS", key, id) == 1 then return 0 end -- its own slot, of an earlier delivery
  if redis.call("HLEN", key) >= most then free_places(key, most) end
  return redis.call("HLEN", key) < most and 0 or nil
end
function lead_ms.rate(key, most, window_ms)
  local stored = redis.call("LINDEX", key, most - 1)
  if not stored then return 0 end
  local nth = tonumber(stored) or math.huge -- workers write only numbers
  -- Starts in the future have the time of a clock that was put back: no message waits until then.
  if nth - now_ms > window_ms then redis.call("DEL", key) return 0 end
  return math.max(0, nth + window_ms - now_ms)
end

local function turn_of(key, lead, apart_ms, longest_ms)
  local turn = math.max(now_ms + lead, (tonumber(redis.call("GET", key) or 0) or 0) + apart_ms)
  local wait_ms = math.max(1, math.ceil(turn - now_ms))
  -- The last of very many: not all at the same time. The microseconds are random enough.
  if wait_ms > longest_ms then return longest_ms * (0.5 + time[2] % 1000 / 2000) end
  redis.call("DEL", key)
  redis.call("SET", key, integer(turn), "PX", integer(wait_ms))
  return wait_ms
end
