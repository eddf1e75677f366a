-- Scan a slice of our additional data of a queue, for messages that do not exist any more.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  message id -> failure record, releases, crashes
--   ARGV     cursor, length of the slice
--
-- Returns the next cursor, the number of scanned fields, and the fields of messages that do not exist.
--#include doctor/parts/ids
--#include doctor/parts/side
--#include doctor/parts/slices
local messages, side = KEYS[1], KEYS[2]
local cursor, fields = next_fields(side, ARGV[1], ARGV[2])
local reply = {cursor, #fields}
for _, field in ipairs(fields) do
  if is_stale(messages, field) then reply[#reply + 1] = field end
end
return reply
