-- Return for each message whether it is unchanged since the caller read it:
--   1 yes, 0 it is gone (or was listed before), -1 it was received since. A count of "0": it had never been received.
local function verdicts_since(messages, settings, ids, receive_counts)
  local fields, verdicts, named = {}, {}, {}
  for n, id in ipairs(ids) do fields[n] = id .. ":rc" end
  local scores = redis.call("ZMSCORE", messages, unpack(ids))
  local stored = redis.call("HMGET", settings, unpack(fields))
  for n = 1, #ids do
    if not scores[n] or named[ids[n]] then
      verdicts[n] = 0
    else
      verdicts[n] = (stored[n] or "0") == receive_counts[n] and 1 or -1
    end
    named[ids[n]] = true
  end
  return verdicts, scores
end

-- The ids and receive counts in ARGV from `first` on, in groups of `width` words.
local function receipts_from(first, width)
  local ids, receive_counts = {}, {}
  for at = first, #ARGV, width do
    ids[#ids + 1], receive_counts[#receive_counts + 1] = ARGV[at], ARGV[at + 1]
  end
  return ids, receive_counts
end

-- The fields of releases that belong to messages: number of releases, number of crashes, and the history before a
-- redrive.
local function release_fields(ids)
  local fields = {}
  for n, id in ipairs(ids) do
    fields[3 * n - 2], fields[3 * n - 1], fields[3 * n] = id, id .. ":crashes", id .. ":lives"
  end
  return fields
end
