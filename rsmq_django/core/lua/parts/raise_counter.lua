-- HINCRBY takes three times as long as these two together, and fails when the value is not a number: in the middle of a
-- script, whose writes are not undone. Returns the new value of the counter, as text.
local function raise_counter(hash, field, by)
  local count = raised(redis.call("HGET", hash, field), by)
  redis.call("HSET", hash, field, count)
  return count
end
