-- Remove the phantoms before the first ready message of a queue, by the thousand: there may be a million of them. One call
-- of a script checks a bounded number; the next call continues. Bodies are not read, only their existence is checked.
local SWEPT_AT_ONCE = 1000
local sweeps_left = 5 -- of this call, in all its queues: about ten milliseconds

-- Return how many ids before the first message with a body remain, beginning with the first `skip` of them, which were
-- checked before.
local function sweep(messages, settings, phantoms, skip)
  while sweeps_left > 0 do
    sweeps_left = sweeps_left - 1
    local limit = {"LIMIT", skip, SWEPT_AT_ONCE}
    local reply = redis.call("ZRANGEBYSCORE", messages, "-inf", integer(now_ms), "WITHSCORES", unpack(limit))
    local old, at = {}, 1
    while reply[at] and redis.call("HEXISTS", settings, reply[at]) == 0 do
      if tonumber(reply[at + 1]) <= now_ms - PHANTOM_GRACE_MS then old[#old + 1] = reply[at] else skip = skip + 1 end
      at = at + 2
    end
    quarantine(messages, settings, phantoms, old)
    if at < 2 * SWEPT_AT_ONCE then break end
  end
  return skip
end
