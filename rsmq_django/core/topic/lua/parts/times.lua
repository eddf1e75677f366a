-- When messages were published: one entry for each time slot in which some were, its first index, scored with the
-- slot's start (ms). Messages of other clients belong to the slot in which they were found, so they never count as too
-- old.
local SLOT_MS = 100

-- Return the start of the slot of now; false if it is the newest one already.
local function new_slot(newest)
  local slot = now_ms - now_ms % SLOT_MS
  return slot > (tonumber(newest) or 0) and integer(slot)
end

-- The last index that was certainly published before a time.
local function last_before(log, ms)
  local next_slot = redis.call("ZRANGEBYSCORE", log.time, "(" .. integer(ms - SLOT_MS), "+inf", "LIMIT", 0, 1)[1]
  if next_slot then return tonumber(next_slot) - 1 end
  return index_of(redis.call("HGET", log.meta, "last")) or 0
end
