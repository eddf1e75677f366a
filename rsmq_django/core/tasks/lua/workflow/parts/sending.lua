-- Send messages that were prepared when the workflow was created.
--
-- `targets` in KEYS: per target the zset and hash of its queue and its result record; in ARGV: their number, then per
-- target: role ("next", "then", "on_failure"), field in `steps`, task id, queue, channel, "@" and the queue from which it
-- must report as a member, or "".
--#include parts/note
local targets = {}

--   key, at: index in KEYS of the first target, in ARGV of their number. Returns the index after them.
local function read_targets(key, at)
  local count = tonumber(ARGV[at])
  for n = 0, count - 1 do
    local role, field, task, queue, channel, owner = unpack(ARGV, at + 1 + 6 * n, at + 6 + 6 * n)
    targets[role] = {field = field, task = task, queue = queue, channel = channel, owner = owner,
      messages = KEYS[key + 3 * n], settings = KEYS[key + 3 * n + 1], result = KEYS[key + 3 * n + 2]}
    -- A key of the wrong type fails here, before any write.
    redis.call("ZCARD", targets[role].messages)
    redis.call("HLEN", targets[role].settings)
  end
  return at + 1 + 6 * count
end

-- Send a target, unless it was sent before. A missing queue gets its message, too: a worker that finds that the queue is
-- missing creates it, so nothing is delayed until then.
local function send(role)
  local target = targets[role]
  local prepared = target and redis.call("HGET", steps, target.field)
  if not prepared then return end
  local when, record_ttl_s, body = prepared:match("^(%S+) (%d+) (.*)$")
  if not when or #record_ttl_s > 9 then return end -- another program wrote it
  local own_ms = given_or_own_ms(when, redis.call("HGET", target.settings, "delay"))
  local is_own, due_ms = when == "s" or when == "ms", tonumber(when)
  local visible_ms = is_own and now_ms + (own_ms or 0) or math.max(now_ms, due_ms and due_ms < MAX_MS and due_ms or 0)
  local id = message_id(0, target.task)
  redis.call("HDEL", steps, target.field)
  redis.call("ZADD", target.messages, integer(visible_ms), id)
  redis.call("HSET", target.settings, id, body)
  raise_counter(target.settings, "totalsent", 1)
  redis.pcall("PUBLISH", target.channel, redis.call("ZCARD", target.messages))
  note(target.result, record_ttl_s, visible_ms, "status", "READY", "queue", target.queue, "message", id)
end
