-- Message ids: base 36 of the microsecond, then the caller's random suffix. The i-th message of a batch gets the i-th
-- microsecond after now, because TIME stands still inside a script and equal prefixes would lose the order.
local now_us = time[1] * 1000000 + time[2]

-- The character code of a digit: 0-9, a-z.
local function code(digit) return digit < 10 and 48 + digit or 87 + digit end

-- All characters at once: a string for each digit more would take three times as long.
local function base36(n, length)
  local codes = {}
  for at = length, 1, -1 do
    local digit = n % 36
    codes[at], n = code(digit), (n - digit) / 36
  end
  return string.char(unpack(codes))
end

-- The last digit changes with each message, the ones before it only every 36th time.
local head_number, head = -1, ""
local function message_id(i, suffix)
  local n = now_us + i
  local digit = n % 36
  if (n - digit) / 36 ~= head_number then
    head_number = (n - digit) / 36
    head = base36(head_number, 9)
  end
  return head .. string.char(code(digit)) .. suffix
end
