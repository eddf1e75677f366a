-- Delete the oldest messages beyond the topic's retention, at most TRIM_AT_ONCE in one step.
--   meta: max_count, max_age_ms, max_bytes, wait_for_groups; `bytes` are those of the messages up to `weighed`
local TRIM_AT_ONCE = 1000 -- as many as one call publishes: otherwise a topic would grow with large batches

-- Count the bytes of uncounted messages: those of other clients, or all messages if the limit is new.
local function weigh(log, meta)
  local weighed = math.max(tonumber(meta[6]) or 0, log.first - 1)
  log.bytes, log.weighed = tonumber(meta[5]) or 0, math.min(log.last, weighed + 1000)
  for _, key in ipairs(message_keys(log, weighed + 1, log.weighed)) do log.bytes = log.bytes + size_of(key) end
end

-- Delete messages up to index `to`; returns the number of deleted indexes.
local function drop_up_to(log, to)
  to = math.min(to, log.first + TRIM_AT_ONCE - 1, log.last)
  local count = to - log.first + 1
  if count <= 0 then return 0 end
  local indexes = {}
  for i = 1, count do indexes[i] = log.first + i - 1 end
  remove_messages(log, indexes)
  log.first = to + 1
  redis.call("HSET", log.meta, "first", log.first)
  local slots, over = redis.call("ZRANGE", log.time, 0, count), 0 -- each slot had a message
  while slots[over + 2] and tonumber(slots[over + 2]) <= log.first do over = over + 1 end
  if over > 0 then redis.call("ZREMRANGEBYRANK", log.time, 0, over - 1) end
  return count
end
