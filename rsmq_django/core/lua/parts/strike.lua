-- Remove settled messages from the record of a worker's leases. The record has a field for each fetch and queue, a batch:
-- "<number> <queue>" -> "\n<id> <receive count>" for each message. Messages that succeeded may stay in it until the whole
-- batch has ended, because an id that is in no queue does no harm. All others are removed when they are settled.
--   at: index in ARGV of the number of strikes (removals), which are pairs of batch and id; an id of "" is the whole batch
-- Returns the index after the last strike, and the number of strikes that removed something.
local function strike_one(holds, batch, id)
  local text = redis.call("HGET", holds, batch)
  local from, to = (text or ""):find("\n" .. id .. " ", 1, true)
  if not from then return 0 end
  local next_line = text:find("\n", to, true)
  local rest = text:sub(1, from - 1) .. (next_line and text:sub(next_line) or "")
  redis.call("HDEL", holds, batch) -- removal first, so that the rest works at the memory limit, too
  if rest ~= "" then redis.call("HSET", holds, batch, rest) end
  return 1
end

local function strike(holds, at)
  local last, removed_count = at + 2 * tonumber(ARGV[at]), 0
  for n = at + 1, last, 2 do
    local batch, id = ARGV[n], ARGV[n + 1]
    removed_count = removed_count + (id == "" and redis.call("HDEL", holds, batch) or strike_one(holds, batch, id))
  end
  return last + 1, removed_count
end
