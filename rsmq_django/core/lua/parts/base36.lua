-- Return a time in microseconds as the ten digits at the beginning of message ids. All characters at once, in a table with a
-- fixed size: a string for each additional digit would take three times as long.
local function base36(n)
  local codes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
  for at = 10, 1, -1 do
    local digit = n % 36
    codes[at], n = digit < 10 and 48 + digit or 87 + digit, (n - digit) / 36
  end
  return string.char(unpack(codes))
end
