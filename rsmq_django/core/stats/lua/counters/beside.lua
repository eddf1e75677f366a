-- Read the counters of many queues in one span of time: outcomes of attempts per queue, and the histograms of all together.
--
--   KEYS     hash per queue: its counters in that span (core/stats/counters.py); then per queue its unchanged times
--   ARGV     begin and end of the span (s); a task, to count only its attempts, without samples of the queues; absent for
--            all tasks
--
-- Returns per queue: succeeded, retried, dead or discarded, released, lost, cancelled, total sent (-1 without a sample of
-- the queue). Then "wait" or "run", bucket and count in turn.
local PLACES = {succeeded = 1, retried = 2, dead = 3, discarded = 3, released = 4, lost = 5, cancelled = 6}
--#include stats/counters/parts/unchanged
local begins_s, ends_s, task = ARGV[1], ARGV[2], ARGV[3]
local out, merged, many = {}, {wait = {}, run = {}}, #KEYS / 2

for at = 1, many do
  local row = {0, 0, 0, 0, 0, 0, -1}
  local fields = redis.call("HGETALL", KEYS[at])
  for n = 1, #fields, 2 do
    local name, value = fields[n], tonumber(fields[n + 1]) or 0
    local colon = name:find(":", 1, true)
    local kind = colon and name:sub(1, colon - 1)
    if PLACES[kind] then
      if not task or name:sub(colon + 1) == task then row[PLACES[kind]] = row[PLACES[kind]] + value end
    elseif merged[kind] then
      local bucket, of = name:match("^(%d+):(.*)$", colon + 1)
      if bucket and (not task or of == task) then merged[kind][bucket] = (merged[kind][bucket] or 0) + value end
    elseif name == "=sent" and not task then
      row[7] = value
    end
  end
  if row[7] < 0 and not task then row[7] = sent_while_unchanged(KEYS[many + at], begins_s, ends_s) or -1 end
  for n = 1, 7 do out[#out + 1] = row[n] end
end
for kind, buckets in pairs(merged) do
  for bucket, count in pairs(buckets) do
    out[#out + 1], out[#out + 2], out[#out + 3] = kind, bucket, count
  end
end
return out
