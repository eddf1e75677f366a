-- Release messages that were received but not started: visible at once, and this delivery does not count as an attempt.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   KEYS[3]  hash  message id -> number of releases
--   KEYS[4]  hash  messages leased by this worker (parts/strike)
--   KEYS[5], KEYS[6]  stream and string: the event log, and how many events could not be written
--   ARGV     strikes; channel to wake other workers; then per message: id, receive count; events (parts/events)
--
-- The receive count of a message in a queue never decreases, because it is the fence; so releases are counted
-- separately. Returns 1 done, 0 no such message, -1 lease lost, in the order given.
--#include parts/clock
--#include parts/counters
--#include parts/fence
--#include parts/strike
--#include parts/events
local messages, settings, releases, holds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local log, dropped = KEYS[5], KEYS[6]

local at = strike(holds, 1)
local ids, verdicts = check_receipts(messages, settings, at + 1, last_argument)
for n, id in ipairs(ids) do
  if verdicts[n] == 1 then
    -- Visible already: released by an earlier call whose reply was lost. It must not count twice.
    local is_held = tonumber(redis.call("ZSCORE", messages, id)) > now_ms
    redis.call("ZREM", messages, id)
    redis.call("ZADD", messages, integer(now_ms), id)
    if is_held then
      raise_counter(releases, id, 1)
      log_event(log, dropped, n, "released")
    end
  end
end
redis.pcall("PUBLISH", ARGV[at], redis.call("ZCARD", messages))
return verdicts
