-- The formats of message ids of all known clients, and the time of sending in an id.
local FIRST_YEAR_MS = 1262304000000 -- 2010: an older time means that the id contains no time

-- The format of this client and the reference: 32 characters, the first ten a time. Only these can be entered by hand.
local function is_regular(id) return #id == 32 and not id:find("[^%w:]") end

-- 22 characters (Go, Ruby), 30 (Rust before 17), a UUID (Scala), or the text of a Python bytes object.
local function is_id(text)
  text = text:match("^b'(.*)'$") or text
  if is_regular(text) then return true end
  if #text == 22 or #text == 30 then return not text:find("%W") end
  return #text == 36 and text:find("^%x+%-%x+%-%x+%-%x+%-%x+$") ~= nil
end

local function sent_ms(id)
  local sent_us = is_regular(id) and not id:find(":", 1, true) and tonumber(id:sub(1, 10), 36)
  return sent_us and sent_us / 1000 >= FIRST_YEAR_MS and sent_us / 1000 or nil
end
