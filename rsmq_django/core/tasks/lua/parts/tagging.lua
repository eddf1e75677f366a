-- Add task ids to tags (with parts/clock); expired task ids that were not removed are removed now.
--   tags: keys; kept_ms: from now until an id expires; first, width: index in ARGV of the first task id, words per task
local function add_to_tags(tags, kept_ms, first, width)
  local forget_ms, entries = integer(now_ms + kept_ms), {}
  for at = first, #ARGV, width do
    entries[#entries + 1], entries[#entries + 2] = forget_ms, ARGV[at]
  end
  for _, key in ipairs(tags) do
    redis.call("ZREMRANGEBYSCORE", key, "-inf", integer(now_ms))
    redis.call("ZADD", key, unpack(entries))
    if redis.call("PTTL", key) < kept_ms then redis.call("PEXPIRE", key, integer(kept_ms)) end
  end
end
