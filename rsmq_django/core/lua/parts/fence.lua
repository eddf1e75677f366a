-- Return for each (id, receive count) whether its lease is still valid:
--   1 yes, 0 no such message, -1 another worker has received it since. A count of "" is RSMQ's own rule: no fence.
-- Every client's receive, in every language, increases the count, so (id, count) is a receipt without a field of our own.
local function verdicts_on(messages, settings, ids, receive_counts)
  local verdicts, fields = {}, {}
  if #ids == 0 then return verdicts end
  for n, id in ipairs(ids) do fields[n] = id .. ":rc" end
  local scores = redis.call("ZMSCORE", messages, unpack(ids))
  local stored = redis.call("HMGET", settings, unpack(fields))
  for n = 1, #ids do
    if not scores[n] then
      verdicts[n] = 0
    elseif receive_counts[n] ~= "" and stored[n] ~= receive_counts[n] then
      verdicts[n] = -1
    else
      verdicts[n] = 1
    end
  end
  return verdicts
end

-- The same for receipts in ARGV from `first` to `last`; returns the ids too.
local function check_receipts(messages, settings, first, last)
  local ids, receive_counts = {}, {}
  for at = first, last or #ARGV, 2 do
    ids[#ids + 1] = ARGV[at]
    receive_counts[#receive_counts + 1] = ARGV[at + 1]
  end
  return ids, verdicts_on(messages, settings, ids, receive_counts)
end
