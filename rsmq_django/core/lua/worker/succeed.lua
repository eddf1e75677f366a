-- End the leases of messages whose functions returned: keep their results, delete the messages.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> deliveries that were given back unused
--   KEYS[4]  hash  what this worker holds: message id -> "receive count queue"
--   KEYS[5..] hash  result record of each message that keeps one, in order
--   ARGV     per message: id, receive count, seconds to keep the result (0: none); if kept: number of words, words
--
-- Returns 1 done, 0 no such message, -1 lease lost (nothing was written), in the order given.
--#include shared/fence
--#include shared/remove
--#include shared/results
local messages, settings, releases, holds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ids, receive_counts, ttls, words = {}, {}, {}, {}
local at, n = 1, 0
while at <= #ARGV do
  n = n + 1
  ids[n], receive_counts[n], ttls[n], words[n] = ARGV[at], ARGV[at + 1], ARGV[at + 2], at + 3
  at = at + 3
  if ttls[n] ~= "0" then at = at + 1 + tonumber(ARGV[at]) end
end

local verdicts = verdicts_on(messages, settings, ids, receive_counts)
local done, key = {}, 4
-- A removal comes first: after it, a server at its memory limit takes everything else that this script writes.
if #ids > 0 then redis.call("HDEL", holds, unpack(ids)) end
for i, id in ipairs(ids) do
  if ttls[i] ~= "0" then key = key + 1 end
  if verdicts[i] == 1 then
    done[#done + 1] = id
    if receive_counts[i] ~= "1" then redis.call("HDEL", releases, id, id .. ":crashes", id .. ":lives") end
    if ttls[i] ~= "0" then
      write_result(KEYS[key], ttls[i], words[i])
      redis.call("HSET", KEYS[key], "body", redis.call("HGET", settings, id) or "")
    end
  end
end
remove(messages, settings, done)
return verdicts
