-- A receipt is the id of a message, or "<id>:<deliveries>", which is valid until it is delivered again. Read the receipts
-- in ARGV from `first` on and return the ids of the valid ones, each once, in order, and their histories. `among`: key of
-- the delivered messages (the default), or of the dead ones.
local function held_by_receipts(queue, first, among)
  local ids, wanted = {}, {}
  for at = first, #ARGV do
    local id, count = string.match(ARGV[at], "^(%d+%-%d+):(%d+)$")
    ids[#ids + 1], wanted[#ids + 1] = id or ARGV[at], tonumber(count) or false
  end
  local held, held_histories, seen = {}, {}, {}
  if #ids == 0 then return held, held_histories end
  local scores, histories = redis.call("ZMSCORE", among or queue.delivered, unpack(ids)), read_history(queue, ids, 1)
  for n, id in ipairs(ids) do
    if scores[n] and not seen[id] and (not wanted[n] or wanted[n] == histories[n].count) then
      seen[id] = true
      held[#held + 1], held_histories[#held + 1] = id, histories[n]
    end
  end
  return held, held_histories
end
