-- Note that a process waits for messages, so that parts/wake wakes it alone; or remove the note.
--   zset: channel of a waiting process -> how many messages it holds, `count` for this one; is_waiting: note it;
--   is_noted: it may have a note
-- Returns whether a sender has removed the note and woken this process, which does not wait any more.
local WAITING_TTL_MS = "600000"

local function note_waiting(zset, channel, count, is_waiting, is_noted)
  if is_waiting then
    -- A refusal, at the memory limit for example, costs only the way to be woken alone.
    if redis.pcall("ZADD", zset, count, channel) == 1 then redis.call("PEXPIRE", zset, WAITING_TTL_MS) end
  elseif is_noted then
    return redis.pcall("ZREM", zset, channel) == 0
  end
  return false
end
