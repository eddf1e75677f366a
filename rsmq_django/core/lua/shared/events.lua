-- The events at the end of ARGV, one for each message of the call, in order. Each has nine words: task, task id, attempt,
-- sent (ms), wait and run (us), size of the body, error type, error. Then come the name of the queue, the worker and the
-- cap of the log, and the number of all these words: 0 when nothing is logged.
local EVENT_WORDS = 9
local is_logged = ARGV[#ARGV] ~= "0"
--   Index of the last argument that is not about events.
local last_argument = #ARGV - 1 - tonumber(ARGV[#ARGV])

-- Write the event of the message that is `number` in the call. Settling a message is never refused because of its event:
-- one that cannot be written is counted.
local function log_event(log, dropped, number, id, kind)
  if not is_logged then return end
  local n, at = #ARGV, last_argument + EVENT_WORDS * (number - 1)
  local error_type, error_text = ARGV[at + 8], ARGV[at + 9]
  if kind == "lost" and error_type ~= "ProcessDied" then error_type, error_text = "LeaseLost", "" end
  local reply = redis.pcall("XADD", log, "MAXLEN", "~", ARGV[n - 1], "*", "e", kind, "q", ARGV[n - 3], "t", ARGV[at + 1],
    "i", ARGV[at + 2], "m", id, "a", ARGV[at + 3], "s", ARGV[at + 4], "w", ARGV[at + 5], "r", ARGV[at + 6],
    "b", ARGV[at + 7], "k", ARGV[n - 2], "x", error_type, "y", error_text)
  if type(reply) == "table" and reply.err then redis.pcall("INCR", dropped) end
end
