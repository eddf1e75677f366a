-- The receipts of a group. Every delivery of a message has another one: the number of the delivery and, when the group was
-- set elsewhere, the time of that, because deliveries count from 1 again then.
local function receipt_end(group)
  local forgot = redis.call("HGET", group.own, "forgot")
  return forgot and " " .. forgot or ""
end

-- Return those indexes whose receipts are the current ones: pairs of index and receipt in ARGV from `first` on. A receipt
-- of "" fits always.
local function held_by_receipt(group, first)
  local indexes, receipts, fitting = {}, {}, {}
  for at = first, #ARGV, 2 do indexes[#indexes + 1], receipts[#receipts + 1] = ARGV[at], ARGV[at + 1] end
  if #indexes == 0 then return fitting end
  local counts, tail = redis.call("HMGET", group.counts, unpack(indexes)), receipt_end(group)
  for i, index in ipairs(indexes) do
    if receipts[i] == "" or receipts[i] == (counts[i] or "1") .. tail then fitting[#fitting + 1] = index end
  end
  return fitting
end
