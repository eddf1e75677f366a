-- Write fields into a result record and keep it for `ttl_s` more seconds.
--   at: index in ARGV of the number of words, which are fields and values in turn
-- Returns the index behind the last word.
local function write_result(key, ttl_s, at)
  local last = at + tonumber(ARGV[at])
  redis.call("HSET", key, unpack(ARGV, at + 1, last))
  redis.call("EXPIRE", key, ttl_s)
  return last + 1
end
