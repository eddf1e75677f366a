-- The events at the end of ARGV, one line for each message of the call, in order: task, task id, message id, attempt,
-- sent (ms), wait and run (us), size of the body, with newlines between; tags follow with one more newline at the end.
-- Then come the name of the queue, the worker, "<error type>\n<error>" (of calls that settle one message), the maximum
-- length of the log, and the number of all these words: 0 when nothing is logged.
local is_logged = ARGV[#ARGV] ~= "0"
--   Index of the last argument before the events, and of the last line. A number below 0 would make loops endless.
local last_argument = #ARGV - 1 - math.abs(tonumber(ARGV[#ARGV]))
local last_line = #ARGV - 5

-- Write the event of the message that is `number` in the call. A message is settled even if its event cannot be written:
-- such events are counted. All thirteen values are one text (core/stats/events.py describes them): passing each value to the
-- server takes three times as long.
local function log_event(log, dropped, number, kind)
  if not is_logged then return end
  local n, at = #ARGV, last_argument + number
  local line, tags, queue, worker, error, most = ARGV[at], nil, ARGV[n - 4], ARGV[n - 3], ARGV[n - 2], ARGV[n - 1]
  if line:byte(-1) == 10 then line, tags = line:match("^(.*)\n([^\n]*)\n$") end
  if kind == "lost" and error:sub(1, 12) ~= "ProcessDied\n" then error = "LeaseLost\n" end
  local values, reply = kind .. "\n" .. queue .. "\n" .. line .. "\n" .. worker .. "\n" .. error, nil
  if tags then
    reply = redis.pcall("XADD", log, "MAXLEN", "~", most, "*", "v", values, "g", tags)
  elseif at < last_line then
    reply = redis.pcall("XADD", log, "*", "v", values)
  else
    reply = redis.pcall("XADD", log, "MAXLEN", "~", most, "*", "v", values) -- once per call is enough
  end
  if type(reply) == "table" and reply.err then redis.pcall("INCR", dropped) end
end
