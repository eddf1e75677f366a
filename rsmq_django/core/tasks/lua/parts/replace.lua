-- Replace a waiting call of a unique task with a newer one (with parts/remove, parts/note, parts/announce_end).
--   messages, settings, record: keys of the older call; id: of its message; ttl_s, visible_ms: see parts/note;
--   task: id of the newer call
local function replace(messages, settings, record, id, ttl_s, visible_ms, task)
  local awaited_by = redis.pcall("HGET", record, "awaited_by")
  remove(messages, settings, {id})
  redis.call("DEL", record)
  note(record, ttl_s, visible_ms, "status", "DUPLICATE", "of", task)
  -- Who waits for the older call waits for the newer one from now on.
  announce_end(record, type(awaited_by) == "string" and awaited_by)
end
