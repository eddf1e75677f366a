-- Batches of calls for several queues, sent from one script (with parts/clock, ids, units, counters and note).
--
-- In KEYS per batch: zset and hash of its queue, and the result record of each call if its results are kept; in ARGV:
-- queue, channel, delay in ms or the unit of the queue's own delay, seconds to keep an unfinished record (0: none), number
-- of calls, "@" and the queue from which its members must report, or ""; per call: member, suffix, body.
local WORDS, WORDS_OF_CALL = 6, 3

-- Read a batch that begins at KEYS[key] and ARGV[at]: the messages to store, and its size limit.
local function read_batch(key, at)
  local queue, channel, delay, record_ttl_s, count, owner = unpack(ARGV, at, at + WORDS - 1)
  local batch = {messages = KEYS[key], settings = KEYS[key + 1], first_record = key + 2, first = at + WORDS,
    queue = queue, channel = channel, record_ttl_s = record_ttl_s, count = tonumber(count), owner = owner}
  local stored = redis.call("HMGET", batch.settings, "delay", "maxsize", "vt")
  redis.call("ZCARD", batch.messages) -- a key of the wrong type fails here, before any write
  batch.exists, batch.most = stored[3], tonumber(stored[2]) or -1
  batch.visible_ms = now_ms + (given_or_own_ms(delay, stored[1]) or 0)
  return batch
end

-- Read all batches. Adds queues that do not exist to `missing`; returns the batches, members and their tasks in turn, and
-- an error reply for a body that is too long for its queue.
local function read_batches(key, at, missing)
  local batches, expected = {}, {}
  while at <= #ARGV do
    local batch = read_batch(key, at)
    batches[#batches + 1] = batch
    if not batch.exists then missing[#missing + 1] = batch.queue end
    for n = 0, batch.count - 1 do
      local member, task, body = unpack(ARGV, batch.first + WORDS_OF_CALL * n, batch.first + WORDS_OF_CALL * n + 2)
      local size, last = #body, #expected
      expected[last + 1], expected[last + 2] = member, task .. batch.owner
      if batch.most >= 0 and size > batch.most then
        local words = size .. " " .. batch.most .. " " .. batch.queue
        return batches, expected, redis.error_reply("RSMQ MessageTooLong " .. words)
      end
    end
    key, at = batch.first_record + (batch.record_ttl_s == "0" and 0 or batch.count), batch.first + WORDS_OF_CALL * batch.count
  end
  return batches, expected
end

local function send_batches(batches)
  local number = 0
  for _, batch in ipairs(batches) do
    local scores, bodies, score = {}, {}, integer(batch.visible_ms)
    for n = 1, batch.count do
      local at = batch.first + WORDS_OF_CALL * (n - 1)
      local id = message_id(number, ARGV[at + 1])
      number = number + 1
      scores[2 * n - 1], scores[2 * n] = score, id
      bodies[2 * n - 1], bodies[2 * n] = id, ARGV[at + 2]
      local record = KEYS[batch.first_record + n - 1]
      note(record, batch.record_ttl_s, batch.visible_ms, "status", "READY", "queue", batch.queue, "message", id)
    end
    redis.call("ZADD", batch.messages, "NX", unpack(scores))
    redis.call("HSET", batch.settings, unpack(bodies))
    raise_counter(batch.settings, "totalsent", batch.count)
    redis.pcall("PUBLISH", batch.channel, redis.call("ZCARD", batch.messages))
  end
end
