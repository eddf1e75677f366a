-- Search the bodies of messages whose events are known, if the bodies are still stored.
--
--   KEYS     per event: hash, result record; hashes of attributes, counters, bodies of the queue and of its
--            dead-letter queue
--   ARGV     number of words; the words, in lower case; then the message id of each event
--
-- Returns per event the numbers of the words in its body, from 1, in one text with blanks between; "" when it has none of
-- them, or is gone (parts/has_word). Bodies of more than 65,536 bytes are not searched. Ends before the last event once
-- it has searched 262,144 bytes, so that other clients need not wait: the caller continues with the next event.
--#include parts/has_word
local LONGEST, budget_bytes = 65536, 262144
local number_of_words, words, out = math.min(tonumber(ARGV[1]), #ARGV - 1), {}, {}
for n = 1, number_of_words do words[n] = ARGV[1 + n] end

local function body_of(event)
  local id = ARGV[1 + number_of_words + event]
  for place = 3 * event - 2, 3 * event do
    local field = place % 3 == 1 and "body" or id
    local length = redis.pcall("HSTRLEN", KEYS[place], field)
    if type(length) == "number" and length > 0 and length <= LONGEST then
      return redis.call("HGET", KEYS[place], field)
    end
  end
  return ""
end

for event = 1, #ARGV - 1 - number_of_words do
  local body, found = body_of(event):lower(), {}
  for n, word in ipairs(words) do
    if has_word(body, word) then found[#found + 1] = tostring(n) end
  end
  out[event] = table.concat(found, " ")
  budget_bytes = budget_bytes - #body
  if budget_bytes <= 0 then break end
end
return out
