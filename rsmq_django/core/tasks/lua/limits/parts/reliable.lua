-- Return when the lease of a message in a reliable queue expires, from its last delivery (reliable/parts/deliveries); nil
-- when it has expired, or when the message was delivered again since. `queue` has the keys `delivered` and `history`,
-- `name` is "reliable:<lease in ms>:<queue>".
local EPOCH_MS, STEPS_PER_MS = 1577836800000, 4096
local function lease_in_reliable_queue(queue, holder, name, count_then)
  local score, entry = redis.call("ZSCORE", queue.messages, holder), redis.call("HGET", queue.settings, holder)
  if not score or not entry or entry:match("^(%d+) ") ~= count_then then return nil end
  local ends_ms = math.floor(tonumber(score) / STEPS_PER_MS) + EPOCH_MS + tonumber(name:match("^reliable:(%d+):") or 0)
  if ends_ms <= now_ms then return nil end
  return ends_ms
end
