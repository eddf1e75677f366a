-- How many messages of a log exceed its retention (topic/retain deletes them).

-- The last index that every known group has read; a group that was moved back to the start counts as 0. So do the
-- groups of a key that another program uses.
local function read_by_all(log)
  local groups, cursors = redis.pcall("ZRANGE", log.groups, 0, 999), {}
  if groups.err then return 0 end
  for i, group in ipairs(groups) do cursors[i] = log.name .. ":" .. group .. ":nextIndex" end
  local lowest = log.last
  for _, text in ipairs(#cursors > 0 and redis.call("MGET", unpack(cursors)) or {}) do
    lowest = math.min(lowest, index_of(text) or 0)
  end
  return lowest
end

-- Count the bytes of all messages, and return the last index that has to go for the rest to fit.
local function last_too_heavy(log, meta, max_bytes)
  weigh(log, meta)
  local to, kept = log.first - 1, log.bytes
  while kept > max_bytes and to < log.weighed and to < log.first + TRIM_AT_ONCE - 1 do
    to = to + 1
    kept = kept - size_of(message_keys(log, to, to)[1])
  end
  return to
end

-- Delete messages beyond the retention, unless they are fewer than `at_least`: deleting one by one would cost more.
-- Returns how many were deleted, and whether more are left.
local function retain(log, at_least)
  local meta =
    redis.call("HMGET", log.meta, "max_count", "max_age_ms", "max_bytes", "wait_for_groups", "bytes", "weighed")
  local max_count, max_age_ms, max_bytes = tonumber(meta[1]), tonumber(meta[2]), tonumber(meta[3])
  if not (max_count or max_age_ms or max_bytes) then return 0, false end
  local to = 0
  if max_count then to = log.last - max_count end
  if max_age_ms then to = math.max(to, last_before(log, now_ms - max_age_ms)) end
  if max_bytes then to = math.max(to, last_too_heavy(log, meta, max_bytes)) end
  if meta[4] then to = math.min(to, read_by_all(log)) end
  to = math.min(to, log.first + TRIM_AT_ONCE - 1, log.last)
  if to - log.first + 1 < at_least then to = log.first - 1 end
  local dropped = drop_up_to(log, to)
  if max_bytes then redis.call("HSET", log.meta, "bytes", log.bytes, "weighed", log.weighed) end
  return dropped, dropped == TRIM_AT_ONCE or (log.weighed or log.last) < log.last
end
