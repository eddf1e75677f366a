-- Progress of a workflow when one of its members ends or takes a step: sends the next step or a callback, once.
--
-- In ARGV: member, id of its task (and the sealed queue from which it must report, as in `members`), targets.
local member, task

-- Returns the index in ARGV after the arguments that are read here.
--   key, at: index in KEYS of the workflow's keys, in ARGV of the member
local function read_member(key, at)
  name_keys(key)
  member, task = ARGV[at], ARGV[at + 1]
  return read_targets(key + 6, at + 2)
end

-- Return whether the workflow waits for this task. Reads every key, because a key of the wrong type must fail now.
local function is_awaited()
  redis.call("HLEN", results)
  redis.call("HLEN", steps)
  redis.call("LLEN", room)
  local waiting, failed = redis.call("HGET", members, member), redis.call("HGET", failures, member)
  if not redis.call("HGET", state, "status") then return false end -- expired
  local failed_task, plain = failed and failed:match("^%S*"), task:match("^[^@]*")
  -- Without a queue: sent by a release that stored none, or to a queue without keys.
  return waiting == task or waiting == plain or failed_task == task or failed_task == plain
end

-- Send the callbacks when all members have ended, and wake a sender that waits for free places.
local function conclude()
  local s = redis.call("HMGET", state, "status", "sealed", "sent", "succeeded", "failed", "always", "keep_ms", "low")
  -- Another program may have written any of them; if the number of members is not valid, the workflow never ends.
  local status, sent, low = s[1], tonumber(s[3]), tonumber(s[8])
  local succeeded, failed = tonumber(s[4]) or 0, tonumber(s[5]) or 0
  if low and redis.call("HLEN", members) <= low then
    redis.call("HDEL", state, "low")
    redis.call("RPUSH", room, "1")
  end
  local has_ended = s[2] == "1" and sent and succeeded + failed >= sent
  if status ~= "cancelled" and has_ended then
    redis.call("HSET", state, "status", failed == 0 and "succeeded" or "failed", "finished_ms", integer(now_ms))
    if failed == 0 or s[6] == "1" then send("then") end
    if failed > 0 then send("on_failure") end
  elseif status == "failed" then -- until a failed member was redriven
    redis.call("HSET", state, "status", "running")
    redis.call("HDEL", state, "finished_ms")
  end
  keep_alive(s[7])
end
