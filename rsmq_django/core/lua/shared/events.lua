-- The events at the end of ARGV, one line for each message of the call, in order: task, task id, attempt, sent (ms), wait
-- and run (us), size of the body, with newlines between. Then come error type and error (of calls that end one message),
-- the name of the queue, the worker and the cap of the log, and the number of all these words: 0 when nothing is logged.
local FIELD = "([^\n]*)"
local LINE = FIELD .. ("\n" .. FIELD):rep(6)
local is_logged = ARGV[#ARGV] ~= "0"
--   Index of the last argument that is not about events.
local last_argument = #ARGV - 1 - tonumber(ARGV[#ARGV])

-- Write the event of the message that is `number` in the call. Settling a message is never refused because of its event:
-- one that cannot be written is counted.
local function log_event(log, dropped, number, id, kind)
  if not is_logged then return end
  local n = #ARGV
  local error_type, error_text = ARGV[n - 5], ARGV[n - 4]
  if kind == "lost" and error_type ~= "ProcessDied" then error_type, error_text = "LeaseLost", "" end
  local task, task_id, attempt, sent, wait, run, size = ARGV[last_argument + number]:match(LINE)
  local reply = redis.pcall("XADD", log, "MAXLEN", "~", ARGV[n - 1], "*", "e", kind, "q", ARGV[n - 3], "t", task,
    "i", task_id, "m", id, "a", attempt, "s", sent, "w", wait, "r", run, "b", size, "k", ARGV[n - 2],
    "x", error_type, "y", error_text)
  if type(reply) == "table" and reply.err then redis.pcall("INCR", dropped) end
end
