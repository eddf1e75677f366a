-- Return whether a text contains a word, both in lower case: a number only as a whole, so that 7 is not found in 47 or in
-- an id.
local function has_word(text, word)
  if not text:find(word, 1, true) then return false end
  return word:find("%D") ~= nil or text:find("%f[%w]" .. word .. "%f[%W]") ~= nil
end
