-- Read messages without receiving them.
-- Even a preview needs the whole body: the server cannot read a part of a field.
local LONGEST_TO_CUT_BYTES = 65536

-- Return the body size (-1: no body, the message is a phantom) and up to `longest` bytes of the body.
local function read_body(settings, id, longest)
  local size = redis.call("HSTRLEN", settings, id)
  if size == 0 then return redis.call("HEXISTS", settings, id) - 1, "" end
  if longest == 0 or (size > longest and size > LONGEST_TO_CUT_BYTES) then return size, "" end
  return size, redis.call("HGET", settings, id):sub(1, longest)
end

-- Append to `out` per message: id, score, receive count, first receive, body size, body, failure record; "" is absent.
--   found: id, score, id, score, ... as ZRANGE returns them; failures: nil when the records are not needed
-- Stops after the message that exceeds `budget` bytes.
local function read_into(out, settings, failures, found, longest, budget)
  local spent, n = 0, #out
  for at = 1, #found, 2 do
    local id = found[at]
    local counts = redis.call("HMGET", settings, id .. ":rc", id .. ":fr")
    local size, body = read_body(settings, id, longest)
    local failure = failures and redis.call("HGET", failures, id) or ""
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = id, found[at + 1], counts[1] or "", counts[2] or ""
    out[n + 5], out[n + 6], out[n + 7], n = size, body, failure, n + 7
    spent = spent + math.min(size, longest) + #failure
    if spent > budget then break end
  end
  return out
end
