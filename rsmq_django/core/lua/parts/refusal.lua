-- Return whether an error of pcall() is from a server that accepts no writes at all. It refuses the first write.
local function is_refusal(failure)
  local why = type(failure) == "table" and failure.err or failure
  return why:find("MISCONF", 1, true) or why:find("READONLY", 1, true) or why:find("NOREPLICAS", 1, true)
end
