-- Bodies that are too long to be sent to a worker.
--
-- RSMQ allows no smaller `maxsize`, so shorter bodies are not compared with that of their queue.
local SHORT_BYTES = 1024
-- For queues without a limit: MAX_BODY_BYTES of core/limits.py, above which our own clients send nothing.
local MOST_BYTES = 16777216

-- Return the limit of a queue. Any program may have written `maxsize`.
local function longest_body(settings)
  local stored = tonumber(redis.call("HGET", settings, "maxsize") or nil)
  return stored and stored >= 0 and stored < MOST_BYTES and math.max(SHORT_BYTES, math.floor(stored)) or MOST_BYTES
end

-- Some clients count characters or UTF-16 units instead of bytes: a body within their limit is not too long either.
local function is_too_long(body, longest)
  if #body <= longest then return false end
  if #body > MOST_BYTES or #body > 4 * longest then return true end
  return #body:gsub("[\128-\191]+", "") > longest
end

-- Return a body, or "" and the words "too_long <bytes> <limit> ".
local function unless_too_long(body, longest)
  if not is_too_long(body, longest) then return body end
  return "", "too_long " .. #body .. " " .. longest .. " "
end
