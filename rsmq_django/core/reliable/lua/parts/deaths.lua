-- Split messages into deliverable and dead ones, and record the dead ones. The caller has removed all of them from
-- their previous keys.
local function bury_spent(queue, ids, histories)
  local most = tonumber(redis.call("HGET", queue.state, "max_deliveries")) or 0
  if most <= 0 then return ids, histories end
  local remaining, remaining_histories, scores, entries = {}, {}, {}, {}
  for n, id in ipairs(ids) do
    local history = histories[n]
    if history.count - history.unused < most then
      remaining[#remaining + 1], remaining_histories[#remaining + 1] = id, history
    else
      scores[#scores + 1], entries[#entries + 1] = integer(now_ms), id
      scores[#scores + 1], entries[#entries + 1] = id, history_entry(history)
    end
  end
  if #scores > 0 then
    redis.call("ZADD", queue.dead, unpack(scores))
    redis.call("HSET", queue.history, unpack(entries))
    add_to_total(queue, "buried", #scores / 2)
  end
  return remaining, remaining_histories
end
