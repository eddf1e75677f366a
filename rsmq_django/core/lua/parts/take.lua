-- Receive messages from a queue of tasks/worker/fetch, whose variables this uses: `out` gets the messages, `batches` the new
-- fields of the worker's record, `room`, `left` and `skipped` the remaining room, `unreadable` the broken queues.
--#include parts/refusal
--#include parts/too_long
local now_text = integer(now_ms)
--#include parts/how_many_fit
--#include parts/receipts

local function fetch(position, most, messages, settings, deliveries, phantoms)
  local wait_ms = ms_until_next(messages)
  local stored = redis.call("HMGET", settings, "vt", "maxsize")
  local own_ms = given_or_own_ms(ARGV[FIRST_ARG + PER_QUEUE * (position - 1)], stored[1])
  if not own_ms then error("no visibility timeout") end
  if wait_ms ~= 0 then return 0, wait_ms end
  redis.call("HLEN", deliveries) -- a key of the wrong type fails here, before any delivery

  local size = sizes[position] or 1
  most = math.min(most * size, left)
  local asked = most
  if most > 1 and may_be_long(stored[2]) then most = how_many_fit(messages, settings, most) end
  local lease_ms = math.max(own_ms, shortest_lease_ms)
  local found = hand_out(messages, settings, phantoms, most, now_ms + lease_ms, true)
  local ids, due, values = found.ids, found.due, found.values
  local receive_counts, first_receives = found.receive_counts, found.first_receives
  local taken, are_new, waited, longest = #ids, true, nil, nil
  out[n + 1], out[n + 2], n = position, taken, n + 2
  for i = 1, taken do
    if due[i] ~= due[i - 1] then waited = waited_ms(due[i]) end -- messages that were sent together have one time
    local body, refusal = values[2 * i - 1], nil
    if #body > (longest or SHORT_BYTES) then
      longest = longest or longest_body(settings)
      body, refusal = unless_too_long(body, longest)
    end
    out[n + 1], out[n + 2], n = ids[i], body, n + 3
    if receive_counts[i] == "1" and first_receives[i] == now_text and not refusal then
      out[n] = waited
    else
      out[n] = (refusal or "") .. history(deliveries, ids[i], receive_counts[i], first_receives[i]) .. " " .. waited
      are_new = false
    end
  end
  if taken > 0 then
    batches[position] = (batches[position] or "") .. receipts(ids, receive_counts, are_new)
  else
    n = n - 2
  end
  local calls = math.ceil(taken / size)
  room, left, longest_ms = room - calls, left - taken, math.max(longest_ms, lease_ms)
  if most < asked then left = 0 end -- the next messages are of this queue, in another fetch
  return calls, taken < most and ms_until_next(messages) or 0
end

-- Receive messages for up to `most` calls from the queue of these keys; returns for how many, and the ms until its next
-- message, if there is one.
local function take(position, most, ...)
  if skipped[position] then return 0 end
  local before = n
  local ok, taken, wait_ms = pcall(fetch, position, most, ...)
  if ok then return taken, wait_ms end
  if is_refusal(taken) then error(taken, 0) end
  -- A key of the wrong type raises at the first read of a queue, before any write; the other queues are not affected.
  unreadable[#unreadable + 1], skipped[position], n = position, true, before
  return 0
end
