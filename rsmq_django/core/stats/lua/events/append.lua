-- Write events of messages that another script has settled: messages of reliable queues and of topics.
--
--   KEYS[1]  stream  the event log
--   KEYS[2]  string  events that could not be written
--   ARGV     the kind, and then parts/events; up to 1,000 lines
--
-- Returns the number of lines.
--#include parts/events
local count = is_logged and last_line - last_argument or 0
for number = 1, count do log_event(KEYS[1], KEYS[2], number, ARGV[1]) end
return count
