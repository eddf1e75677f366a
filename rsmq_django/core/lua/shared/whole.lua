-- Return a count as text; what another program left in its place counts as none.
local function whole(stored)
  return stored and #stored <= 15 and stored:match("^%d+$") or "0"
end
