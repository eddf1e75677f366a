-- Store the result of a message whose function returned.
--   key: hash, its result record; id: of the message; body: the message's, or false; attempt: its number; keep_s: seconds
--   to keep the record
--#include parts/results
--#include parts/announce_end
local function keep_result(key, queue, worker, id, body, began_ms, ended_ms, value, receive_count, attempt, keep_s)
  local is_ours, awaited_by = is_own(key, id, queue)
  if not is_ours then return end
  local is_first = attempt == "1"
  if is_first and receive_count ~= "1" then begin_anew(key) end
  -- The time when the first attempt began does not change: a later attempt would store its own begin twice.
  local begin = is_first and "started_ms" or "attempted_ms"
  local added = set_fields(key, "body", body or "", "worker:" .. attempt, worker, "attempted_ms", began_ms,
    begin, began_ms, "status", "SUCCESSFUL", "value", value, "finished_ms", ended_ms)
  if not added then return end
  -- All fields are new: there was no record, as for messages of other clients. Usually the sender writes these fields.
  if added == (is_first and 7 or 6) then redis.call("HSET", key, "queue", queue, "message", id) end
  redis.call("EXPIRE", key, keep_s)
  if awaited_by then announce_end(key, awaited_by) end
end
