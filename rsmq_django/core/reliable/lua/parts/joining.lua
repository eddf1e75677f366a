-- Add bodies to the end of a queue, at once or after a delay; the first push creates the queue. `sizes` are those
-- before the first write. Returns the ids: "<ms>-<n>", n from 1 in each ms. They always grow, even if the clock goes
-- back.
local function join(names, queue, sizes, bodies, delay_ms)
  local last = redis.call("HMGET", queue.state, "ms", "seq")
  local ms, seq = tonumber(last[1]) or 0, tonumber(last[2]) or 0
  if now_ms > ms then ms, seq = now_ms, 0 end

  local head, ids, fields = integer(ms) .. "-", {}, {}
  for n, body in ipairs(bodies) do
    local id = head .. seq + n
    ids[n], fields[2 * n - 1], fields[2 * n] = id, id, body
  end

  if sizes.state == 0 then redis.call("SADD", names, queue.name) end
  if delay_ms > 0 then
    local due, scores = integer(now_ms + delay_ms), {}
    for n, id in ipairs(ids) do scores[2 * n - 1], scores[2 * n] = due, id end
    redis.call("ZADD", queue.delayed, unpack(scores))
  else
    redis.call("RPUSH", queue.undelivered, unpack(ids))
  end
  redis.call("HSET", queue.bodies, unpack(fields))
  redis.call("HSET", queue.state, "ms", integer(ms), "seq", integer(seq + #ids))
  add_to_total(queue, "pushed", #ids)
  -- Also for a delayed message, so that waiting clients learn when it is due.
  if sizes.wake == 0 then redis.call("RPUSH", queue.wake, 1) end
  return ids
end
