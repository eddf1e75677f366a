-- Say for each (id, receive count) in ARGV from `first` on whether its holder may still act:
--   1 yes, 0 no such message, -1 it was handed to somebody else. A count of "" is RSMQ's own rule: no fence.
-- Every client's receive, in every language, raises the count, so (id, count) is a receipt without a field of our own.
local function check_receipts(messages, settings, first, step)
  local ids, fields, wanted = {}, {}, {}
  for at = first, #ARGV, step do
    local n = #ids + 1
    ids[n], fields[n], wanted[n] = ARGV[at], ARGV[at] .. ":rc", ARGV[at + 1]
  end
  local verdicts = {}
  if #ids == 0 then return ids, verdicts end
  local scores = redis.call("ZMSCORE", messages, unpack(ids))
  local counts = redis.call("HMGET", settings, unpack(fields))
  for n = 1, #ids do
    if not scores[n] then
      verdicts[n] = 0
    elseif wanted[n] ~= "" and counts[n] ~= wanted[n] then
      verdicts[n] = -1
    else
      verdicts[n] = 1
    end
  end
  return ids, verdicts
end
