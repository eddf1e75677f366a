-- Store messages with a queue's own delay unless the caller gave a delay.
--   delay: milliseconds, or the unit of the queue's own delay (parts/units); first: index in ARGV of suffix1, body1, ...
-- Returns the new ids and the time at which they become visible (ms), or an error reply; nothing was written then.
local function store(messages, settings, delay, channel, first)
  local stored = redis.call("HMGET", settings, "delay", "maxsize", "vt", "totalsent")
  if not stored[3] then return redis.error_reply("RSMQ QueueNotFound") end
  local max_size = tonumber(stored[2]) or -1
  local visible_ms = now_ms + (given_or_own_ms(delay, stored[1]) or 0)
  local score = integer(visible_ms)

  local ids, scores, bodies = {}, {}, {}
  for at = first, #ARGV, 2 do
    local n, suffix, body = #ids, ARGV[at], ARGV[at + 1]
    if max_size >= 0 and #body > max_size then
      return redis.error_reply("RSMQ MessageTooLong " .. #body .. " " .. max_size)
    end
    local id = message_id(n, suffix)
    ids[n + 1] = id
    scores[2 * n + 1], scores[2 * n + 2] = score, id
    bodies[2 * n + 1], bodies[2 * n + 2] = id, body
  end
  redis.call("ZADD", messages, "NX", unpack(scores))
  bodies[#bodies + 1], bodies[#bodies + 2] = "totalsent", raised(stored[4], #ids)
  redis.call("HSET", settings, unpack(bodies))
  -- A missing permission for the wake-up must not look like a failed send: the messages are stored.
  if channel ~= "" then redis.pcall("PUBLISH", channel, redis.call("ZCARD", messages)) end
  return ids, visible_ms
end
