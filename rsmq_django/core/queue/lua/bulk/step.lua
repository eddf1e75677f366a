-- Find the end of a short slice of a stream, so that no script blocks the server for a whole batch. Read-only.
--
--   KEYS[1]  stream
--   ARGV     id before the slice; last id, or "+"; maximum number of entries (1..1000)
--
-- Returns entries found, id of the last of them, entries ever added (-1: the server does not count them), entries removed
-- from the head, newest id ever created, identity of the log (see parts/log_of).
--#include parts/log_of
local stream, after, upto, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local entries = redis.call("XRANGE", stream, "(" .. after, upto, "COUNT", most)
local added, gone, newest = 0, 0, "0-0"
local log, fact = log_of(stream)
if fact then
  newest = fact["last-generated-id"]
  added = fact["entries-added"] or -1
  if added >= 0 then gone = added - fact["length"] end
end
return {#entries, #entries > 0 and entries[#entries][1] or after, added, gone, newest, log}
