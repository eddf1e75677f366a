-- The end of a member, or its next step. Only for awaited members (parts/progress).
local function member_succeeded(value)
  if redis.call("HDEL", failures, member) == 1 then raise_counter(state, "failed", -1) end
  local s = redis.call("HMGET", state, "status", "keeps")
  raise_counter(state, "calls_done", 1)
  if targets.next and s[1] ~= "cancelled" then
    redis.call("HSET", results, member, value)
    redis.call("HSET", members, member, targets.next.task .. targets.next.owner)
    send("next")
  else
    redis.call("HDEL", members, member)
    redis.call("HDEL", results, member)
    if s[2] == "1" then redis.call("HSET", results, member, value) end
    if not targets.next then raise_counter(state, "succeeded", 1) end
  end
  conclude()
end

local function member_failed(record)
  redis.call("HDEL", members, member)
  if redis.call("HSET", failures, member, task .. " " .. record) == 1 then raise_counter(state, "failed", 1) end
  conclude()
end
