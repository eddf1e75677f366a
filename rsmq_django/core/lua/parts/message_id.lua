-- The ids of a batch (with parts/base36): the i-th message gets the i-th microsecond after now, because TIME is constant
-- inside a script and equal prefixes would lose the order. The last digit changes with each message, the previous digits
-- only every 36th time.
local head_number, head = -1, ""
local function message_id(i, suffix)
  local n = now_us + i
  local digit = n % 36
  if n - digit ~= head_number then head_number, head = n - digit, base36(n):sub(1, 9) end
  return head .. string.char(digit < 10 and 48 + digit or 87 + digit) .. suffix
end
