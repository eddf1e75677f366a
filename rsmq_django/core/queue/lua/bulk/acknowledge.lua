-- Remove journal entries that are stored elsewhere, and delete their messages whose leases are still ours.
--
--   KEYS[1]  zset    message id -> time it becomes visible (ms)
--   KEYS[2]  hash    attributes, counters, bodies
--   KEYS[3]  stream  journal
--   KEYS[4]  hash    leased messages in the journal: id -> our receive count
--   ARGV     id of the last finished entry; maximum number of entries (1..1000)
--
-- Returns entries removed, messages that stay because another consumer has received them.
--#include parts/remove
local messages, settings, journal, open = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local finished, most = ARGV[1], ARGV[2]

local entries = redis.call("XRANGE", journal, "-", finished, "COUNT", most)
local ours, done, left = {}, {}, 0
for _, entry in ipairs(entries) do
  local id = entry[2][2]
  local receive_count = redis.call("HGET", open, id)
  if receive_count and redis.call("HGET", settings, id .. ":rc") == receive_count then
    ours[#ours + 1] = id
  elseif receive_count then
    left = left + 1
  end
  done[#done + 1] = entry[1]
end
if #done == 0 then return {0, 0} end
remove(messages, settings, ours)
for _, entry in ipairs(entries) do redis.call("HDEL", open, entry[2][2]) end
redis.call("XDEL", journal, unpack(done))
return {#done, left}
