-- Read the sums of the counters of many queues in one span of time: outcomes of attempts, and their histograms.
--
--   KEYS  hash per queue: its counters in that span; then the same hashes of the span before it (core/stats/counters.py);
--         then per queue its unchanged times
--   ARGV  begin and length of the span (s)
--
-- Returns succeeded, retried, dead or discarded, released, lost, cancelled, sent since the previous span (-1 when that is
-- not known of any queue). Then "wait" or "run", bucket and count in turn.
local PLACES = {succeeded = 1, retried = 2, dead = 3, discarded = 3, released = 4, lost = 5, cancelled = 6}
--#include stats/counters/parts/unchanged
local out, merged, many = {0, 0, 0, 0, 0, 0, -1}, {wait = {}, run = {}}, #KEYS / 3
local begins_s, span_s = tonumber(ARGV[1]), tonumber(ARGV[2])

local function add(place, value) out[place] = math.max(out[place], 0) + value end

for at = 1, many do
  local fields, now = redis.call("HGETALL", KEYS[at]), nil
  for n = 1, #fields, 2 do
    local name, value = fields[n], tonumber(fields[n + 1]) or 0
    local kind = name:match("^(%a+):")
    if PLACES[kind] then
      add(PLACES[kind], value)
    elseif merged[kind] then
      local bucket = name:match("^%a+:(%d+):")
      if bucket then merged[kind][bucket] = (merged[kind][bucket] or 0) + value end
    elseif name == "=sent" then
      now = value
    end
  end
  local times = KEYS[2 * many + at]
  now = now or sent_while_unchanged(times, begins_s, begins_s + span_s)
  local before = now and (tonumber(redis.call("HGET", KEYS[many + at], "=sent"))
    or sent_while_unchanged(times, begins_s - span_s, begins_s))
  -- A queue that was deleted and created again begins at 0.
  if before then add(7, now >= before and now - before or now) end
end
for kind, buckets in pairs(merged) do
  for bucket, count in pairs(buckets) do
    out[#out + 1], out[#out + 2], out[#out + 3] = kind, bucket, count
  end
end
return out
