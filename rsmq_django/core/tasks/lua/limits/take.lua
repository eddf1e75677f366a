-- Take a slot for a message in all limits of its task if all of them have one; else in none.
--
--   KEYS     per limit two: the counted data, and the time of the last turn that was given to a waiting message (ms, string);
--            then per queue two: zset message id -> time it becomes visible (ms); hash attributes, counters, bodies
--     counted data, "concurrency": hash of slots, message id -> "<receive count> <held until at least, ms> <queue>";
--     "rate": list of the times (ms) of the latest starts, newest first
--   ARGV     id, receive count, lease in ms, minimum wait of this message in ms, number of limits; per limit
--            "concurrency" or "rate", its maximum, its span in ms ("rate"), longest wait in ms; per queue its name, the
--            message's own first
--
-- Returns {1}: it may run; {0, ms to wait}; or {-1, names of queues}: call again with the keys of these queues to check
-- whether messages in them still hold their slots, because a script may use only keys that it was given.
--
-- A slot is held as long as the lease of its message. The lease is checked only when there is no free slot, so that running
-- messages cost nothing here, and the slot of a dead worker becomes free with its message.
--#include parts/clock
local id, receive_count, held_ms, least_ms, count = ARGV[1], ARGV[2], now_ms + ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local PER_LIMIT, FIRST = 4, 6
-- Slots whose lease was valid a moment ago are checked only where that is cheap.
local FEW = 100
-- Waiting messages return one after the other, so that thousands of them do not return together.
local TURN_MS = 5

local queues, unknown, is_unknown = {}, {}, {}
for n = FIRST + PER_LIMIT * count, #ARGV do
  local at = 2 * count + 2 * (n - FIRST - PER_LIMIT * count) + 1
  queues[ARGV[n]] = {messages = KEYS[at], settings = KEYS[at + 1]}
end

--#include tasks/limits/parts/places

local limits, wait_ms, is_full = {}, least_ms, false
for n = 1, count do
  local at = FIRST + PER_LIMIT * (n - 1)
  local limit = {kind = ARGV[at], key = KEYS[2 * n - 1], turns = KEYS[2 * n], most = tonumber(ARGV[at + 1])}
  limit.window_ms, limit.longest_ms = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  limit.lead = lead_ms[limit.kind](limit.key, limit.most, limit.window_ms)
  limits[n] = limit
  is_full = is_full or limit.lead ~= 0
end
if #unknown > 0 and is_full then return {-1, unpack(unknown)} end
for _, limit in ipairs(limits) do
  if limit.lead ~= 0 then
    local apart_ms = limit.kind == "rate" and limit.window_ms / limit.most or TURN_MS
    wait_ms = math.max(wait_ms, turn_of(limit.turns, limit.lead or 0, apart_ms, limit.longest_ms))
  end
end
if is_full then return {0, math.ceil(wait_ms)} end

-- Each kind of write begins with a removal, so that a server at its memory limit can be drained of limited tasks, too.
local MONTH_MS = 30 * 86400000
for _, limit in ipairs(limits) do
  if limit.kind == "concurrency" then
    redis.call("HDEL", limit.key, id)
    redis.call("HSET", limit.key, id, receive_count .. " " .. integer(held_ms) .. " " .. ARGV[FIRST + PER_LIMIT * count])
    redis.call("PEXPIRE", limit.key, MONTH_MS) -- for limits that are not used any more
  else
    redis.call("LTRIM", limit.key, 0, limit.most - 1)
    redis.call("LPUSH", limit.key, integer(now_ms))
    redis.call("LTRIM", limit.key, 0, limit.most - 1)
    redis.call("PEXPIRE", limit.key, integer(limit.window_ms))
  end
end
return {1}
