-- A line "<id> <receive count>" for each message. Mostly all are new; then the lines need not be joined one by one.
local function receipts(ids, receive_counts, are_new)
  if are_new then return "\n" .. table.concat(ids, " 1\n") .. " 1" end
  local lines = {}
  for i = 1, #ids do lines[i] = "\n" .. ids[i] .. " " .. receive_counts[i] end
  return table.concat(lines)
end
