-- Hand out up to `count` ready messages of one queue, oldest first. A phantom is no message: the next one is delivered in
-- its place.
--#include shared/ready
--#include shared/sweep
local MAX_LOOKS = 100

local function append(found, more)
  for name, list in pairs(found) do
    for _, value in ipairs(more[name]) do list[#list + 1] = value end
  end
  return found
end

-- Returns what was found: ids, due, fields and values as find_ready() has them, and what hold() adds.
local function hand_out(messages, settings, phantoms, count, visible_ms, with_due)
  local found, seen = {ids = {}}, 0
  for _ = 1, MAX_LOOKS do
    local wanted = count - #found.ids
    local more = find_ready(messages, settings, seen, wanted, with_due)
    local is_last = #more.ids < wanted
    seen = seen + drop_phantoms(messages, settings, phantoms, more)
    found = #found.ids == 0 and more or append(found, more)
    if is_last or #found.ids == count then break end
    if #more.ids == 0 then -- phantoms only
      if sweeps_left == 0 then break end
      seen = sweep(messages, settings, phantoms, seen)
    end
  end
  -- All leases at the end: with a visibility timeout of 0 another look would find the same messages again.
  if #found.ids > 0 then hold(messages, settings, found, visible_ms) end
  return found
end
