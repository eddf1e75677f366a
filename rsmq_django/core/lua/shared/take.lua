-- Take messages from one of the queues of worker/fetch, whose variables this uses: `out` gets the messages, `batches` what
-- the worker's record will say, `room`, `left` and `skipped` what is left, `unreadable` which queues are broken.
local function fetch(position, most, messages, settings, deliveries, phantoms)
  local wait_ms = ms_until_next(messages)
  local own_ms = given_or_own_ms(ARGV[FIRST_ARG + PER_QUEUE * (position - 1)], redis.call("HGET", settings, "vt"))
  if not own_ms then error("no visibility timeout") end
  if wait_ms ~= 0 then return 0, wait_ms end

  local size = sizes[position] or 1
  most = math.min(most * size, left)
  local lease_ms, batch, due = math.max(own_ms, shortest_lease_ms), batches[position] or {}, {}
  local function give(id, body, receive_count, first_received)
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = position, id, body, receive_count
    out[n + 5], out[n + 6], out[n + 7] = first_received, history(deliveries, id, receive_count), due[id]
    n = n + 7
    local b = #batch
    batch[b + 1], batch[b + 2], batch[b + 3], batch[b + 4] = "\n", id, " ", receive_count
  end
  local taken = hand_out(messages, settings, phantoms, most, now_ms + lease_ms, give, due)
  if taken > 0 then batches[position] = batch end
  local calls = math.ceil(taken / size)
  room, left, longest_ms = room - calls, left - taken, math.max(longest_ms, lease_ms)
  return calls, taken < most and ms_until_next(messages) or 0
end

-- Take messages for up to `most` calls from the queue of these keys; returns for how many, and the ms until its next
-- message, if there is one.
local function take(position, most, ...)
  if skipped[position] then return 0 end
  local before = n
  local ok, taken, wait_ms = pcall(fetch, position, most, ...)
  if ok then return taken, wait_ms end
  -- A key of the wrong type raises at the first read of a queue, before anything is written; the others go on.
  unreadable[#unreadable + 1], skipped[position], n = position, true, before
  return 0
end
