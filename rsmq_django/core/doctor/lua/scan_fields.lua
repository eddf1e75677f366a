-- Scan a slice of a queue's hash for fields that belong to no message.
--
--   KEYS[1]  zset  message id -> time it becomes visible (ms)
--   KEYS[2]  hash  attributes, counters, bodies
--   ARGV     cursor, length of the slice, ms for which a sender may still be between two steps
--
-- Returns the next cursor; the number of scanned fields; the number of unknown fields, and one of them; then for each orphan
-- "body" or "counter" and its id. A field in no format of an id is not an orphan: another client stored it.
--#include parts/clock
--#include doctor/parts/ids
--#include doctor/parts/slices
local KNOWN = {vt = 1, delay = 1, maxsize = 1, created = 1, modified = 1, totalrecv = 1, totalsent = 1}
local messages, settings, grace_ms = KEYS[1], KEYS[2], tonumber(ARGV[3])
-- A queue named like the list of queues has a set in place of its messages: none of its bodies can be received.
local has_messages = redis.call("TYPE", messages).ok == "zset"

local function is_message(id) return has_messages and redis.call("ZSCORE", messages, id) end

local function is_young(id) return math.abs(now_ms - (sent_ms(id) or 0)) < grace_ms end

local function kind_of(field)
  local suffix, id = field:sub(-3), field:sub(1, -4)
  if suffix == ":rc" or suffix == ":fr" then
    if is_message(id) or redis.call("HEXISTS", settings, id) == 1 then return "message" end
    return is_id(id) and "counter" or "unknown", id
  end
  return is_id(field) and "body" or "unknown", field
end

local cursor, fields = next_fields(settings, ARGV[1], ARGV[2])
local unknown, unknown_field, orphans = 0, "", {}
for _, field in ipairs(fields) do
  if not KNOWN[field] and not is_message(field) then
    local kind, id = kind_of(field)
    if kind == "unknown" then
      unknown, unknown_field = unknown + 1, field
    elseif kind ~= "message" and not is_young(id) then
      orphans[#orphans + 1] = kind
      orphans[#orphans + 1] = id
    end
  end
end

local reply = {cursor, #fields, unknown, unknown_field}
for i, word in ipairs(orphans) do reply[4 + i] = word end
return reply
