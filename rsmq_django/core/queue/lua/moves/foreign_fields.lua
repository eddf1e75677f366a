-- List the fields of other programs in a slice of a queue's hash: fields that belong to no message and that RSMQ does not
-- know.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   ARGV     cursor, length of the slice
--
-- Returns the next cursor and the names.
--#include doctor/parts/ids
--#include doctor/parts/slices
local KNOWN = {vt = 1, delay = 1, maxsize = 1, created = 1, modified = 1, totalrecv = 1, totalsent = 1}
local messages, settings = KEYS[1], KEYS[2]

local function is_of_message(field)
  local suffix, id = field:sub(-3), field:sub(1, -4)
  if suffix ~= ":rc" and suffix ~= ":fr" then id = field end
  return is_id(id) or redis.call("ZSCORE", messages, id)
end

local cursor, fields = next_fields(settings, ARGV[1], ARGV[2])
local reply = {cursor}
for _, field in ipairs(fields) do
  if not KNOWN[field] and not is_of_message(field) then reply[#reply + 1] = field end
end
return reply
