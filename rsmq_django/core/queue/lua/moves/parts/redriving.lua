-- Redrive dead letters; keys and arguments are those of queue/moves/redrive, which describes them.
--#include parts/clock
--#include parts/counters
--#include parts/ids
--#include parts/remove
--#include queue/moves/parts/seen
--#include queue/moves/parts/earlier_attempts
local messages, settings, failures, releases, target, target_settings, target_releases = unpack(KEYS, 1, 7)

-- key: index in KEYS before the first result record; first: index in ARGV before the first message; due_of: function of
-- the old and the new id that returns when the new message becomes visible (ms). Returns the reply of queue/moves/redrive.
local function redrive(key, first, due_of)
  if redis.call("HEXISTS", settings, "vt") == 0 then return redis.error_reply("RSMQ QueueNotFound") end
  local limit = redis.call("HMGET", target_settings, "maxsize", "vt")
  if not limit[2] then return -1 end
  local max_size = tonumber(limit[1]) or -1
  redis.call("ZCARD", target) -- a key of the wrong type fails here, before any removal
  for _, hash in ipairs({target_releases, failures, releases}) do redis.call("HLEN", hash) end

  local ids, receive_counts = receipts_from(first + 1, 5)
  local reply = verdicts_since(messages, settings, ids, receive_counts)
  local gone, places, bodies, past, awaited = {}, {}, {}, {}, {}
  for n, id in ipairs(ids) do
    local at = first + 5 * (n - 1)
    local has_result = ARGV[at + 4] == "1"
    if has_result then key = key + 1 end
    local body = reply[n] == 1 and redis.call("HGET", settings, id)
    if reply[n] == 1 and not body then reply[n] = 0 end
    if body and max_size >= 0 and #body > max_size then reply[n] = -2 end
    if reply[n] == 1 then
      reply[n] = message_id(n, ARGV[at + 3])
      gone[#gone + 1] = id
      local due = due_of(id, reply[n])
      places[#places + 1], places[#places + 2] = due, reply[n]
      bodies[#bodies + 1], bodies[#bodies + 2] = reply[n], body
      carry_past(reply[n], ARGV[at + 5], redis.call("HGET", settings, id .. ":fr"), bodies, past)
      -- A record is kept from the time on at which its message becomes visible.
      if has_result then awaited[KEYS[key]] = {id, reply[n], ARGV[3] + math.ceil((due - now_ms) / 1000)} end
    end
  end
  if #gone == 0 then return reply end

  remove(messages, settings, gone)
  redis.call("ZADD", target, unpack(places))
  redis.call("HSET", target_settings, unpack(bodies))
  if #past > 0 then redis.call("HSET", target_releases, unpack(past)) end
  redis.call("HDEL", failures, unpack(gone))
  redis.call("HDEL", releases, unpack(release_fields(gone)))
  for record, words in pairs(awaited) do await_again(record, ARGV[2], words[2], words[3], words[1], messages) end
  raise_counter(target_settings, "totalsent", #gone)
  -- A missing permission for the channel must not look like a failed redrive.
  redis.pcall("PUBLISH", ARGV[1], redis.call("ZCARD", target))
  return reply
end
