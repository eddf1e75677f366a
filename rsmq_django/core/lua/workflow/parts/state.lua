-- A workflow: members, each a task or a chain of tasks, and the callbacks that follow when all members have ended.
--
-- Its keys, in this order:
--   state     hash  kind, name, status, sealed (1: no more members will come), sent, succeeded, failed (members), calls,
--                   calls_done (calls of tasks), keeps (1: results are kept), always (1: `then` also follows failures),
--                   keep_ms, created_ms, finished_ms; low (how few members must be left to wake the sender); then, on_failure
--                   (ids of the tasks), shape (JSON: which tasks it is made of, for people); then_members, on_failure_members (proofs
--                   of `sent` for callbacks on sealed queues)
--   members   hash  member -> id of the task that stands for it now, and "@" and its queue if that is sealed: it ends only
--                   from there; only those that have not ended
--   results   hash  member -> value (JSON) of its last step that has ended; then proofs for sealed queues, one a line
--   failures  hash  member -> task as in `members`, a blank, failure record (JSON); then proofs
--   steps     hash  what is sent later, "<member>.<step>", "then" or "on_failure" -> "<when> <seconds to keep an unfinished
--                   record, 0: none> <body>"; when: epoch ms, or the unit of the queue's own delay (shared/units)
--   room      list  a token for a sender that waits until fewer members are left
--
-- Every change of a member names the task that stands for it, so that a message that is there twice counts once.
local state, members, results, failures, steps, room

--   first: index in KEYS of these keys
local function name_keys(first)
  state, members, results, failures, steps, room = unpack(KEYS, first, first + 5)
end

-- Everything expires together, some time after it was last used. Instead of a time that no sender wrote, that is a week.
local WEEK_MS, LONGEST_MS = 604800000, 1e15

local function keep_alive(keep_ms)
  local ms = tonumber(keep_ms)
  if not (ms and ms >= 1 and ms <= LONGEST_MS) then ms = WEEK_MS end
  local words = string.format("%.0f", ms)
  for _, key in ipairs({state, members, results, failures, steps, room}) do redis.call("PEXPIRE", key, words) end
end
