-- Write into a result record, which is kept until its message becomes visible and `record_ttl_s` after that.
--   visible_ms: of its message; record_ttl_s: "0" for tasks that keep no results
local function note(record, record_ttl_s, visible_ms, ...)
  if record_ttl_s == "0" then return end
  redis.call("HSET", record, ...)
  redis.call("EXPIRE", record, record_ttl_s + math.max(0, math.ceil((visible_ms - now_ms) / 1000)))
end
