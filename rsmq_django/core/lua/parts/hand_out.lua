-- Deliver up to `count` ready messages of one queue, oldest first. A phantom is not a message: the next message is delivered
-- in its place.
--#include parts/ready
--#include parts/sweep
local MAX_LOOKS = 100

local function append(found, more)
  for name, list in pairs(found) do
    for _, value in ipairs(more[name]) do list[#list + 1] = value end
  end
  return found
end

-- Returns the delivered messages: ids, due, fields and values as in find_ready(), and the fields that hold() adds.
local function hand_out(messages, settings, phantoms, count, visible_ms, with_due)
  local found, seen = {ids = {}}, 0
  for _ = 1, MAX_LOOKS do
    local wanted = count - #found.ids
    local more = find_ready(messages, settings, seen, wanted, with_due)
    local is_last = #more.ids < wanted
    seen = seen + drop_phantoms(messages, settings, phantoms, more)
    found = #found.ids == 0 and more or append(found, more)
    if is_last or #found.ids == count then break end
    if #more.ids == 0 then -- only phantoms
      if sweeps_left == 0 then break end
      seen = sweep(messages, settings, phantoms, seen)
    end
  end
  -- All leases at the end: with a visibility timeout of 0 another search would find the same messages again.
  if #found.ids > 0 then hold(messages, settings, found, visible_ms) end
  return found
end
