-- A message that was tried before may be the one that ends each process that runs it: only `most` messages are read when
-- there is one, so that no others lose a delivery with it again. Returns how many messages to read.
local function cut_tried(letters, count, most)
  for _, letter in ipairs(letters) do
    if letter[3] - letter[4] > 1 then
      for at = #letters, most + 1, -1 do letters[at] = nil end
      return most
    end
  end
  return count
end
