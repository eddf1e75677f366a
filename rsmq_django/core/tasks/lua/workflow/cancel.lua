-- Cancel a task, and count the member as failed in its workflow, in one step.
--
--   KEYS     those of tasks/cancel; the keys of the workflow (parts/state) and of its targets (parts/sending)
--   ARGV     number of keys before the workflow's; failure record of the member (JSON); member (parts/progress); then the
--            arguments of tasks/cancel
--
-- Returns the reply of tasks/cancel; 0: the member was not counted.
--#include tasks/parts/cancelling
--#include parts/counters
--#include parts/ids
--#include parts/units
--#include tasks/workflow/parts/state
--#include tasks/workflow/parts/sending
--#include tasks/workflow/parts/progress
--#include tasks/workflow/parts/ends
local first = read_member(tonumber(ARGV[1]) + 1, 3)
local awaited = is_awaited()
local was_there = cancel(first)
if was_there == 1 and awaited then member_failed(ARGV[2]) end
return was_there
