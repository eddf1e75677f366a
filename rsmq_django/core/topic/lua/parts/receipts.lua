-- The receipts of a group. Every delivery of a message has its own: the number of the delivery and, if the group was
-- moved, the time of the move, because deliveries then count from 1 again.
local function receipt_end(group)
  local forgot = redis.call("HGET", group.own, "forgot")
  return forgot and " " .. forgot or ""
end

-- Return the indexes whose receipts are current: pairs of index and receipt in ARGV from `first` on. A receipt of ""
-- is always valid.
local function held_by_receipt(group, first)
  local indexes, receipts, fitting = {}, {}, {}
  for at = first, #ARGV, 2 do indexes[#indexes + 1], receipts[#receipts + 1] = ARGV[at], ARGV[at + 1] end
  if #indexes == 0 then return fitting end
  local counts, tail = redis.call("HMGET", group.counts, unpack(indexes)), receipt_end(group)
  for i, index in ipairs(indexes) do
    if receipts[i] == "" or receipts[i] == (counts[i] or "1"):match("^%d*") .. tail then fitting[#fitting + 1] = index end
  end
  return fitting
end

-- Return the reply for the messages in ARGV from `first` on of which these were in flight: their number for all or
-- none, else 1 or 0 for each.
local function reply_which(first, held)
  if #held == 0 or 2 * #held == #ARGV - first + 1 then return #held end
  local is_one, reply = {}, {}
  for _, index in ipairs(held) do is_one[index] = 1 end
  for at = first, #ARGV, 2 do
    reply[#reply + 1], is_one[ARGV[at]] = is_one[ARGV[at]] or 0, nil
  end
  return reply
end
