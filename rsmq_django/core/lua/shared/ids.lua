-- Message ids: base 36 of the microsecond, then the caller's random suffix. The i-th message of a batch gets the i-th
-- microsecond after now, because TIME stands still inside a script and equal prefixes would lose the order.
local DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
local now_us = time[1] * 1000000 + time[2]

local function base36(n)
  local text = ""
  while n > 0 do
    local digit = n % 36
    text = DIGITS:sub(digit + 1, digit + 1) .. text
    n = (n - digit) / 36
  end
  return text
end

-- The last digit changes with each message, the ones before it only every 36th time.
local head_number, head = -1, ""
local function message_id(i, suffix)
  local n = now_us + i
  local digit = n % 36
  if (n - digit) / 36 ~= head_number then
    head_number = (n - digit) / 36
    head = base36(head_number)
  end
  return head .. DIGITS:sub(digit + 1, digit + 1) .. suffix
end
