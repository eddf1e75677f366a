-- Note in a zset of tasks/worker/fetch, whose variables this uses, that the process waits; without room, remove its note.
-- Where a sender has removed it, it has woken this process alone: the next one is woken for what is left.
--#include parts/waiting
--#include parts/wake
local function pass_on(zset)
  local namespace, base_name = zset:match("^(.*)::waiting:(.*)$")
  for position = 1, queues do
    local messages, is_readable, wait_ms = keys_of(position), nil, nil
    if ARGV[FIRST_ARG + PER_QUEUE * (position - 1) + 2] == base_name and not skipped[position] then
      is_readable, wait_ms = pcall(ms_until_next, messages)
    end
    if is_readable and wait_ms == 0 then return wake(zset, namespace .. ":rt:" .. base_name, messages) end
  end
end

local function note_queue(zset)
  local count = tonumber(ARGV[6]) + (tonumber(ARGV[tail]) or tonumber(ARGV[1])) - left
  if note_waiting(zset, ARGV[5], count, next_ms ~= 0, ARGV[7] == "1") then pass_on(zset) end
end
