-- The next slice of a hash's field names. Bodies are not read if the server can leave them out (Redis 7.4, Valkey 8);
-- otherwise the slice is a tenth, because their bytes pass through the script.
local function next_fields(hash, cursor, count)
  local slice = redis.pcall("HSCAN", hash, cursor, "COUNT", count, "NOVALUES")
  if not slice.err then return slice[1], slice[2] end
  slice = redis.call("HSCAN", hash, cursor, "COUNT", math.ceil(count / 10))
  local names = {}
  for i = 1, #slice[2], 2 do names[#names + 1] = slice[2][i] end
  return slice[1], names
end
