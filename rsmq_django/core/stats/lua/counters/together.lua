-- Read the sums of the counters of many queues in one span of time: outcomes of attempts, and their histograms.
--
--   KEYS  hash per queue: its counters in that span; then the same hashes of the span before it (core/stats/counters.py)
--
-- Returns succeeded, retried, dead or discarded, released, lost, cancelled, sent since the previous span (-1 when that is
-- not known of any queue). Then "wait" or "run", bucket and count in turn.
local PLACES = {succeeded = 1, retried = 2, dead = 3, discarded = 3, released = 4, lost = 5, cancelled = 6}
local out, merged, many = {0, 0, 0, 0, 0, 0, -1}, {wait = {}, run = {}}, #KEYS / 2

local function add(place, value) out[place] = math.max(out[place], 0) + value end

for at = 1, many do
  local fields = redis.call("HGETALL", KEYS[at])
  for n = 1, #fields, 2 do
    local name, value = fields[n], tonumber(fields[n + 1]) or 0
    local kind = name:match("^(%a+):")
    if PLACES[kind] then
      add(PLACES[kind], value)
    elseif merged[kind] then
      local bucket = name:match("^%a+:(%d+):")
      if bucket then merged[kind][bucket] = (merged[kind][bucket] or 0) + value end
    elseif name == "=sent" then
      local before = tonumber(redis.call("HGET", KEYS[many + at], "=sent"))
      -- A queue that was deleted and created again begins at 0.
      if before then add(7, value >= before and value - before or value) end
    end
  end
end
for kind, buckets in pairs(merged) do
  for bucket, count in pairs(buckets) do
    out[#out + 1], out[#out + 2], out[#out + 3] = kind, bucket, count
  end
end
return out
