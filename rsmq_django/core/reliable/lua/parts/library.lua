-- The functions of the library reply in rows, like the commands of RedisRQ. The scripts themselves reply with a flat
-- list. This is the start of the library; a function for each script follows (core/reliable/library.py).
local function rows(flat, first, width, kept)
  if type(flat) ~= "table" or flat.err then return flat end
  local answer = {}
  for at = first, #flat, width do
    local row = {}
    for column = 0, kept - 1 do row[column + 1] = flat[at + column] end
    answer[#answer + 1] = row
  end
  return answer
end
