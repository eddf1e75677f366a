-- Renumber the attempts in a result record, in the same order: 1, 2, 3 become -2, -1, 0. The next attempts count from 1
-- again and overwrite none of them.
local MOST_ATTEMPTS = 60

local function make_attempts_earlier(record)
  local fields, last, words, old = redis.call("HGETALL", record), 0, {}, {}
  for at = 1, #fields, 2 do
    last = math.max(last, tonumber(fields[at]:match("^%a+:(%-?%d+)$") or 0))
  end
  for at = 1, #fields, 2 do
    local kind, number = fields[at]:match("^(%a+):(%-?%d+)$")
    if (kind == "worker" or kind == "error") and last > 0 then
      old[#old + 1] = fields[at]
      if tonumber(number) - last > -MOST_ATTEMPTS then
        words[#words + 1], words[#words + 2] = kind .. ":" .. (number - last), fields[at + 1]
      end
    end
  end
  for at = 1, #old, 1000 do redis.call("HDEL", record, unpack(old, at, math.min(at + 999, #old))) end
  for at = 1, #words, 1000 do redis.call("HSET", record, unpack(words, at, math.min(at + 999, #words))) end
end

-- Keep the history of a message before its redrive (JSON, "" for none): fields for its queue and for the releases of it.
local function carry_past(id, lives, first_received, fields, releases)
  if lives == "" then return end
  fields[#fields + 1], fields[#fields + 2] = id .. ":rc", "1"
  if first_received then fields[#fields + 1], fields[#fields + 2] = id .. ":fr", first_received end
  releases[#releases + 1], releases[#releases + 2] = id, "1"
  releases[#releases + 1], releases[#releases + 2] = id .. ":lives", lives
end

-- Mark the task of a result record, if there is one, as not finished again. The record of another message is unchanged: a
-- body, and so the failure record of a dead letter, may name any task.
--   old_id, dead: id of the dead letter, key of its dead-letter queue
local function await_again(record, queue, id, ttl_s, old_id, dead)
  local owner = redis.call("HMGET", record, "message", "dead", "queue")
  local function is_there(name) return name and dead:sub(-#name - 1) == ":" .. name end
  if owner[1] ~= old_id or (owner[2] and not (is_there(owner[2]) or is_there(owner[3]))) then return end
  redis.call("HSET", record, "status", "READY", "queue", queue, "message", id)
  redis.call("HDEL", record, "finished_ms")
  make_attempts_earlier(record)
  redis.call("EXPIRE", record, ttl_s)
end
