-- Return a count as text; "0" when another program stored something else.
local function whole(stored)
  return stored and #stored <= 15 and stored:match("^%d+$") or "0"
end
