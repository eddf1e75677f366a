-- A reliable queue is eight keys. KEYS is the set of the names of all reliable queues and then, per queue, in order:
--   undelivered  list  ids, the next one to be delivered at the left
--   delayed      zset  id -> time (ms) at which it joins the end of `undelivered`
--   delivered    zset  id -> its last delivery (parts/deliveries)
--   dead         zset  id -> time (ms) at which it became dead
--   bodies       hash  id -> body, of all the above
--   history      hash  id -> "<deliveries> <how many of them were released unused> <consumer>"; none: never
--                      delivered, or delivered once to a consumer without a name
--   state        hash  ms and seq of the last id; clock: the last score in `delivered`; max_deliveries; totals.
--                      Exists from the first push on, also while the queue is empty
--   wake         list  one token exactly while `undelivered` is not empty: a client that gets it by BLPOP pops
local KEYS_PER_QUEUE = 8

local function queue_at(position)
  local at = 2 + (position - 1) * KEYS_PER_QUEUE
  local name = string.match(KEYS[at + 6] or "", "([^:]+):state$")
  if not name or not KEYS[at + 7] then
    error({err = "RSMQ InvalidArgument the keys of a queue must be given in the order of the documentation"})
  end
  return {
    name = name,
    undelivered = KEYS[at], delayed = KEYS[at + 1], delivered = KEYS[at + 2], dead = KEYS[at + 3],
    bodies = KEYS[at + 4], history = KEYS[at + 5], state = KEYS[at + 6], wake = KEYS[at + 7],
  }
end

-- Count all messages. A key of a wrong type raises here, because an error after the first write would leave half a
-- change. Some of these reads have no other purpose.
local function sizes_of(queue)
  return {
    undelivered = redis.call("LLEN", queue.undelivered), delayed = redis.call("ZCARD", queue.delayed),
    delivered = redis.call("ZCARD", queue.delivered), dead = redis.call("ZCARD", queue.dead),
    bodies = redis.call("HLEN", queue.bodies), history = redis.call("HLEN", queue.history),
    state = redis.call("HLEN", queue.state), wake = redis.call("LLEN", queue.wake),
  }
end

-- Set or remove the token of `wake`.
local function announce(queue)
  if redis.call("EXISTS", queue.undelivered) == 0 then
    redis.call("DEL", queue.wake)
  elseif redis.call("LLEN", queue.wake) == 0 then
    redis.call("RPUSH", queue.wake, 1)
  end
end

-- Whether the client that took the token may still be about to pop the first message.
local function is_fresh(queue)
  local first = redis.call("LINDEX", queue.undelivered, 0)
  local age_ms = now_ms - (first and tonumber(first:match("^(%d+)%-")) or 0)
  return age_ms >= 0 and age_ms < 5000
end

-- An invalid number is reset: an error would come after messages were moved, and scripts cannot roll back.
local function add_to_total(queue, total, by)
  if by == 0 then return end
  if type(redis.pcall("HINCRBY", queue.state, total, by)) ~= "number" then redis.call("HSET", queue.state, total, by) end
end

-- Programs in other languages call these scripts as functions, so numbers are validated here, too.
local function whole_number(at, what, least, most)
  local number = tonumber(ARGV[at])
  if number and number >= least and number <= most and number % 1 == 0 then return number end
  local limits = string.format("a whole number from %.0f to %.0f", least, most)
  error({err = "RSMQ InvalidArgument " .. what .. " must be " .. limits .. ", not " .. tostring(ARGV[at])})
end
