-- A workflow: members, each a task or a chain of tasks, and the callbacks that follow when all members have ended.
--
-- Its keys, in this order:
--   state     hash  kind, name, status, sealed (1: no more members follow), sent, succeeded, failed (members), calls,
--                   calls_done (calls of tasks), keeps (1: results are kept), always (1: `then` also follows failures),
--                   keep_ms, created_ms, finished_ms; low (number of unfinished members at which the sender is woken);
--                   then, on_failure (ids of the tasks), shape (JSON: its tasks, for display); then_members,
--                   on_failure_members (proofs of `sent` for callbacks on sealed queues)
--   members   hash  member -> id of its current task, and "@" and its queue if that is sealed: it can end only
--                   there; only members that have not ended
--   results   hash  member -> value (JSON) of its last step that has ended; then proofs for sealed queues, one per line
--   failures  hash  member -> task as in `members`, a blank, failure record (JSON); then proofs
--   steps     hash  bodies to send later, "<member>.<step>", "then" or "on_failure" -> "<when> <seconds to keep an
--                   unfinished record, 0: none> <body>"; when: epoch ms, or the unit of the queue's own delay (parts/units)
--   room      list  a token for a sender that waits until fewer members remain
--
-- Every change of a member names its current task, so that a message that exists twice counts once.
local state, members, results, failures, steps, room

--   first: index in KEYS of these keys
local function name_keys(first)
  state, members, results, failures, steps, room = unpack(KEYS, first, first + 5)
end

-- All keys expire together, some time after their last use. An invalid time to keep them counts as a week.
local WEEK_MS, LONGEST_MS = 604800000, 1e15

local function keep_alive(keep_ms)
  local ms = tonumber(keep_ms)
  if not (ms and ms >= 1 and ms <= LONGEST_MS) then ms = WEEK_MS end
  local words = string.format("%.0f", ms)
  for _, key in ipairs({state, members, results, failures, steps, room}) do redis.call("PEXPIRE", key, words) end
end
