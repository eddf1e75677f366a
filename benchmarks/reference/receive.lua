-- The least work that receives messages as RSMQ does.
--   KEYS  zset message id -> time it becomes visible (ms); hash attributes, counters, bodies
--   ARGV  how many; visibility timeout (ms)
-- Returns id, body, receive count, first receive (ms) of each, in one flat list.
local messages, settings = KEYS[1], KEYS[2]
local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
-- As text: Redis prints a number with seventeen digits of precision, which costs more than this.
local now_text, visible_text = string.format("%.0f", now_ms), string.format("%.0f", now_ms + ARGV[2])
local ids = redis.call("ZRANGEBYSCORE", messages, "-inf", now_text, "LIMIT", 0, ARGV[1])
if #ids == 0 then return {} end

local scores, fields = {}, {}
for i, id in ipairs(ids) do
  scores[2 * i - 1], scores[2 * i] = visible_text, id
  fields[3 * i - 2], fields[3 * i - 1], fields[3 * i] = id, id .. ":rc", id .. ":fr"
end
redis.call("ZADD", messages, unpack(scores))
local values = redis.call("HMGET", settings, unpack(fields))
local changed, c, out = {}, 0, {}
for i, id in ipairs(ids) do
  local receive_count = values[3 * i - 1] and string.format("%d", values[3 * i - 1] + 1) or "1"
  changed[c + 1], changed[c + 2], c = fields[3 * i - 1], receive_count, c + 2
  if not values[3 * i] then changed[c + 1], changed[c + 2], c = fields[3 * i], now_text, c + 2 end
  out[4 * i - 3], out[4 * i - 2], out[4 * i - 1], out[4 * i] =
    id, values[3 * i - 2], receive_count, values[3 * i] or now_text
end
redis.call("HSET", settings, unpack(changed))
redis.call("HINCRBY", settings, "totalrecv", #ids)
return out
