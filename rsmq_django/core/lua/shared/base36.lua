-- Return a time in microseconds as the ten digits that message ids begin with. All characters at once, in a table that
-- has their number from the start: a string for each digit more would take three times as long.
local function base36(n)
  local codes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
  for at = 10, 1, -1 do
    local digit = n % 36
    codes[at], n = digit < 10 and 48 + digit or 87 + digit, (n - digit) / 36
  end
  return string.char(unpack(codes))
end
