-- Return whether a field of our additional data is of a message that does not exist any more. A field is a message's id, or
-- an id and ":crashes" or ":lives"; a field of any other form was stored by another version, and stays.
local function is_stale(messages, field)
  local id = field:match("^(.*):crashes$") or field:match("^(.*):lives$") or field
  return is_id(id) and not redis.call("ZSCORE", messages, id)
end
