-- Remove messages with all their data in RSMQ. Fields are removed only for ids that were members of the queue, so an
-- id such as "vt" can never remove an attribute.
local function remove(messages, settings, ids)
  if #ids == 0 then return end
  local fields = {}
  for n, id in ipairs(ids) do
    fields[3 * n - 2] = id
    fields[3 * n - 1] = id .. ":rc"
    fields[3 * n] = id .. ":fr"
  end
  redis.call("ZREM", messages, unpack(ids))
  redis.call("HDEL", settings, unpack(fields))
end
