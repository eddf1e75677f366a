-- Records of deliveries. The score of a delivered message is the time of its last delivery, in 1/4096 of a millisecond
-- since 2020. The fraction is a running number: deliveries within a millisecond keep their order, and no score is lower
-- than the one before it, even if the clock goes back. A double represents such numbers exactly until 2089.
local EPOCH_MS, STEPS_PER_MS = 1577836800000, 4096

local function score_at(ms) return (ms - EPOCH_MS) * STEPS_PER_MS end
local function delivered_ms(score) return math.floor(tonumber(score) / STEPS_PER_MS) + EPOCH_MS end

-- Read the history of messages: count, unused and consumer of each. `default`: the count without an entry.
local function read_history(queue, ids, default)
  local histories = {}
  if #ids == 0 then return histories end
  for n, entry in ipairs(redis.call("HMGET", queue.history, unpack(ids))) do
    local count, unused, consumer = string.match(entry or "", "^(%d+) (%d+) (.*)$")
    histories[n] = {count = tonumber(count) or default, unused = tonumber(unused) or 0, consumer = consumer or ""}
  end
  return histories
end

local function history_entry(history)
  return string.format("%d %d %s", history.count, history.unused, history.consumer)
end

-- Record a delivery of each message to `consumer`, in its history, too.
local function note_deliveries(queue, ids, histories, consumer)
  local clock = math.max(tonumber(redis.call("HGET", queue.state, "clock")) or 0, score_at(now_ms))
  local scores, entries = {}, {}
  for n, id in ipairs(ids) do
    local history = histories[n]
    history.count, history.consumer = history.count + 1, consumer
    scores[2 * n - 1], scores[2 * n] = integer(clock + n), id
    if history.count > 1 or consumer ~= "" then
      entries[#entries + 1] = id
      entries[#entries + 1] = history_entry(history)
    end
  end
  redis.call("ZADD", queue.delivered, unpack(scores))
  redis.call("HSET", queue.state, "clock", integer(clock + #ids))
  if #entries > 0 then redis.call("HSET", queue.history, unpack(entries)) end
end
