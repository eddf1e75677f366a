-- Say whether a field of our side data is about a message that does not exist any more. A field is a message's id, or that
-- and ":crashes" or ":lives"; one of any other form is about something this version does not know, and stays.
local function is_stale(messages, field)
  local id = field:match("^(.*):crashes$") or field:match("^(.*):lives$") or field
  return is_id(id) and not redis.call("ZSCORE", messages, id)
end
