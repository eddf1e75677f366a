-- Return whether a record belongs to a message, or does not exist yet. A body names the task of its record, and any program
-- may have written it: a message changes no record of a message in another queue (`dead`: the dead-letter queue of the
-- message when it failed for good). The second value are the processes that wait for the end of the task, see announce_end.
local function is_own(key, id, queue)
  local owner = redis.pcall("HMGET", key, "message", "queue", "awaited_by")
  if owner.err or not owner[1] then return true, owner[3] end
  return owner[1] == id and (owner[2] == queue or redis.call("HGET", key, "dead") == queue), owner[3]
end

-- Write fields and values into a result record. If another program stores something under its key, that is unchanged and
-- there is no result: this delays neither the message nor other messages of the same call.
-- Returns how many fields are new; nil where nothing was written.
--#include queue/moves/parts/earlier_attempts
local function set_fields(key, ...)
  local added = redis.pcall("HSET", key, ...)
  if type(added) == "number" then return added end
  if added.err:find("WRONGTYPE", 1, true) then return nil end
  return redis.call("HSET", key, ...) -- raises the error
end

-- A record keeps worker and error of the first attempt and of the latest ones. Each attempt removes the fields that are too
-- old; several, because previous attempts may have ended without a report, with their machine.
local KEPT_ATTEMPTS, TAKEN_AWAY = 20, 5

local function forget_old_attempts(key, attempt)
  local last, fields = attempt - KEPT_ATTEMPTS, {}
  for n = math.max(2, last - TAKEN_AWAY + 1), last do
    fields[#fields + 1], fields[#fields + 2] = "worker:" .. n, "error:" .. n
  end
  if #fields > 0 then redis.pcall("HDEL", key, unpack(fields)) end
end

-- The first attempt of a worker that consumes a dead-letter queue: previous attempts, which failed for good according to the
-- record, get numbers below 1.
local function begin_anew(key)
  local status = redis.pcall("HGET", key, "status")
  if status == "FAILED" then make_attempts_earlier(key) end
end

-- Write fields into a result record and keep it for `ttl_s` more seconds.
--   at: index in ARGV of the number of words, which are fields and values in turn, beginning with "worker:<attempt>" and
--   ending with "queue" and "message"
local function write_result(key, ttl_s, at)
  local last = at + tonumber(ARGV[at])
  if not is_own(key, ARGV[last], ARGV[last - 2]) then return end
  local attempt = tonumber(ARGV[at + 1]:match("^worker:(%d+)$")) or 1
  if attempt == 1 then begin_anew(key) else forget_old_attempts(key, attempt) end
  if set_fields(key, unpack(ARGV, at + 1, last)) then redis.call("EXPIRE", key, ttl_s) end
end
