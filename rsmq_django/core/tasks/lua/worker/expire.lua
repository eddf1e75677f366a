-- Make messages of a stale worker in one queue visible: at once, and these deliveries count as attempts.
--
--   KEYS[1]  zset  worker id -> time of its last heartbeat (ms)
--   KEYS[2]  hash  messages leased by the worker (parts/strike)
--   KEYS[3]  zset  message id -> time it becomes visible (ms)
--   KEYS[4]  hash  attributes, counters, bodies
--   ARGV     worker id; ms without a heartbeat after which it is dead; strikes; then per message: id, receive count
--
-- Returns how many there were, or -1 when the worker is alive: nothing was changed then.
--#include parts/clock
--#include parts/fence
--#include parts/strike
local workers, holds, messages, settings = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local heartbeat_ms = tonumber(redis.call("ZSCORE", workers, ARGV[1]) or nil)
if heartbeat_ms and heartbeat_ms > now_ms - tonumber(ARGV[2]) then return -1 end

local ids, verdicts = check_receipts(messages, settings, 4 + 2 * tonumber(ARGV[3]))
local expired = 0
for n, id in ipairs(ids) do
  if verdicts[n] == 1 then
    -- Remove, then add: a server at its memory limit refuses ZADD alone.
    redis.call("ZREM", messages, id)
    redis.call("ZADD", messages, integer(now_ms), id)
    expired = expired + 1
  end
end
strike(holds, 3)
return expired
