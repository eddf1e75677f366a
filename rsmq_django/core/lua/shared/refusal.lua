-- Say whether an error of pcall() is that of a server which takes no writes at all. It refuses the first one.
local function is_refusal(failure)
  local why = type(failure) == "table" and failure.err or failure
  return why:find("MISCONF", 1, true) or why:find("READONLY", 1, true) or why:find("NOREPLICAS", 1, true)
end
