-- Store one message. `delay` is in ms, or the unit of the queue's own delay (parts/units); `waiting` as in parts/wake.
-- Returns its id and the time it becomes visible (ms), or an error reply; nothing was written then.
--#include parts/wake
local function store_one(messages, settings, delay, channel, suffix, body, waiting)
  local stored = redis.call("HMGET", settings, "delay", "maxsize", "vt", "totalsent")
  if not stored[3] then return redis.error_reply("RSMQ QueueNotFound") end
  local max_size = tonumber(stored[2]) or -1
  if max_size >= 0 and #body > max_size then
    return redis.error_reply("RSMQ MessageTooLong " .. #body .. " " .. max_size)
  end
  local id, visible_ms = base36(now_us) .. suffix, now_ms + (given_or_own_ms(delay, stored[1]) or 0)
  redis.call("ZADD", messages, "NX", integer(visible_ms), id)
  redis.call("HSET", settings, id, body, "totalsent", raised(stored[4], 1))
  -- All processes have to know of a message that is due later: any of them may be the one with room by then.
  if channel ~= "" then wake(visible_ms <= now_ms and waiting, channel, messages) end
  return id, visible_ms
end
