-- Tell the processes that wait for the end of a task.
--   key: hash, its result record; words: its field `awaited_by`, the words of the processes' channels, or false
local function announce_end(key, words)
  local space, task_id = key:match("^(.*)::result:(.*)$")
  if not words or not space or #words > 400 then return end -- longer than tasks/await_end writes
  for word in words:gmatch("%w+") do
    -- A missing permission for the channel must not look like a failed call: who waits looks now and then.
    local channel = space .. "::ended:" .. word
    redis.pcall("PUBLISH", channel, task_id)
  end
end
