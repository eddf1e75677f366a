-- Scan a slice of a queue's messages.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   ARGV     cursor, length of the slice, ms for which a sender may still be between two steps
--
-- Returns the next cursor; the number of scanned messages; the number of ids that cannot be entered by hand, and one of
-- them; the number of messages sent in the future, and one of them; then id and score of each phantom.
--#include parts/clock
--#include doctor/parts/ids
local YEAR_MS = 31622400000
local messages, settings, grace_ms = KEYS[1], KEYS[2], tonumber(ARGV[3])

-- An id without a time: the score of a recently sent message is about now, unless it is delayed.
local function is_young(id, score) return math.abs(now_ms - (sent_ms(id) or score)) < grace_ms end

local slice = redis.call("ZSCAN", messages, ARGV[1], "COUNT", ARGV[2])
local foreign, foreign_id, future, future_id, phantoms = 0, "", 0, "", {}
for i = 1, #slice[2], 2 do
  local id, score = slice[2][i], slice[2][i + 1]
  if not is_regular(id) then foreign, foreign_id = foreign + 1, id end
  local ahead_ms = (sent_ms(id) or 0) - now_ms
  -- Years ahead it is not a time: the characters of another client's id.
  if ahead_ms > grace_ms and ahead_ms < YEAR_MS then future, future_id = future + 1, id end
  if redis.call("HEXISTS", settings, id) == 0 and not is_young(id, tonumber(score)) then
    phantoms[#phantoms + 1] = id
    phantoms[#phantoms + 1] = score
  end
end

local reply = {slice[1], #slice[2] / 2, foreign, foreign_id, future, future_id}
for i, word in ipairs(phantoms) do reply[6 + i] = word end
return reply
