-- Move one chunk of a stage to the end of a topic.
--
--   KEYS[1..10] as in topic/publish
--   KEYS[11] zset  stage: final id -> time of staging (ms)
--   KEYS[12] hash  stage: final id -> body, with key and headers before it if there are any
--   KEYS[13] hash  job
--   ARGV     prefix of message keys, topic, maximum number of messages (1..1000); 1 if bodies are lengths of key and of
--            headers, each with a colon behind it, then key, headers and body
--
-- Returns how many were moved; 0 when the stage is empty. Errors: TopicBroken <field> <value>.
--#include parts/clock
--#include topic/parts/index
--#include topic/parts/times
--#include topic/parts/append
--#include topic/parts/attach
--#include topic/parts/retain
--#include topic/parts/limits
local log = {
  index = KEYS[1], meta = KEYS[2], time = KEYS[3], wake = KEYS[4], headers = KEYS[5], keys = KEYS[6],
  latest = KEYS[7], stale = KEYS[8], tombstones = KEYS[9], groups = KEYS[10], prefix = ARGV[1], name = ARGV[2],
}
local stage, bodies, job = KEYS[11], KEYS[12], KEYS[13]

local ids = redis.call("ZRANGE", stage, 0, ARGV[3] - 1)
if #ids == 0 then return 0 end
local failure = open_to_append(log, ARGV[4] == "1")
if failure then return failure end

local values = redis.call("HMGET", bodies, unpack(ids))
local extras = {}
for i = 1, #ids do
  values[i] = values[i] or ""
  local key_size, size, at = values[i]:match("^(%d+):(%d+):()")
  if ARGV[4] == "1" and at then
    local headers_at, body_at = at + key_size, at + key_size + size
    extras[i] = {values[i]:sub(at, headers_at - 1), values[i]:sub(headers_at, body_at - 1)}
    values[i] = values[i]:sub(body_at)
  end
end
-- First the writes that a server at its memory limit refuses: all or nothing.
local before = append(log, values, 1, #ids)
for i = 1, #ids do
  if extras[i] then attach(log, before + i, extras[i][1], extras[i][2], values[i] == "") end
end
redis.call("ZREM", stage, unpack(ids))
redis.call("HDEL", bodies, unpack(ids))
redis.call("HINCRBY", job, "published", #ids)
retain(log, 100)
return #ids
