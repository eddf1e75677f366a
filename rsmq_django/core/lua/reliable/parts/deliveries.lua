-- What is known about deliveries. The score of a delivered message is the time of its last delivery, as 1/4096 of a
-- millisecond since 2020. The fraction is a running number: deliveries of one millisecond keep their order, and no score
-- is lower than one before it, whatever the clock does. A double holds such numbers exactly until 2089.
local EPOCH_MS, STEPS_PER_MS = 1577836800000, 4096

local function score_at(ms) return (ms - EPOCH_MS) * STEPS_PER_MS end
local function delivered_ms(score) return math.floor(tonumber(score) / STEPS_PER_MS) + EPOCH_MS end

-- Read how often each message was delivered and to whom it was last, as two lists. Without an entry it is `default` times.
local function read_history(queue, ids, default)
  local counts, consumers = {}, {}
  if #ids == 0 then return counts, consumers end
  for n, entry in ipairs(redis.call("HMGET", queue.history, unpack(ids))) do
    local count, consumer = string.match(entry or "", "^(%d+) (.*)$")
    counts[n], consumers[n] = tonumber(count) or default, consumer or ""
  end
  return counts, consumers
end

-- Note deliveries to `consumer`: the last thing that a pop or a recover does with a message. `counts` includes this one.
local function note_deliveries(queue, ids, counts, consumer)
  local clock = math.max(tonumber(redis.call("HGET", queue.state, "clock")) or 0, score_at(now_ms))
  local scores, entries = {}, {}
  for n, id in ipairs(ids) do
    scores[2 * n - 1], scores[2 * n] = integer(clock + n), id
    if counts[n] > 1 or consumer ~= "" then
      entries[#entries + 1] = id
      entries[#entries + 1] = string.format("%d %s", counts[n], consumer)
    end
  end
  redis.call("ZADD", queue.delivered, unpack(scores))
  redis.call("HSET", queue.state, "clock", integer(clock + #ids))
  if #entries > 0 then redis.call("HSET", queue.history, unpack(entries)) end
end

-- Split messages into those that may be delivered once more and those that died; take note of the dead ones. The caller has
-- removed all of them from where they were.
local function bury_spent(queue, ids, counts)
  local most = tonumber(redis.call("HGET", queue.state, "max_deliveries")) or 0
  if most <= 0 then return ids, counts end
  local living, living_counts, scores, entries = {}, {}, {}, {}
  for n, id in ipairs(ids) do
    if counts[n] < most then
      living[#living + 1], living_counts[#living_counts + 1] = id, counts[n]
    else
      scores[#scores + 1], entries[#entries + 1] = integer(now_ms), id
      scores[#scores + 1], entries[#entries + 1] = id, string.format("%d ", counts[n])
    end
  end
  if #scores > 0 then
    redis.call("ZADD", queue.dead, unpack(scores))
    redis.call("HSET", queue.history, unpack(entries))
    add_to_total(queue, "buried", #scores / 2)
  end
  return living, living_counts
end
