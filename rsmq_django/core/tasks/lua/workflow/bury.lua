-- Move a message to its dead-letter queue, and count the member as failed in its workflow, in one step.
--
--   KEYS     those of tasks/worker/bury; the keys of the workflow (parts/state) and of its targets (parts/sending)
--   ARGV     number of keys before the workflow's; failure record of the member (JSON); member (parts/progress); then the
--            arguments of tasks/worker/bury
--
-- Returns the reply of tasks/worker/bury; if it is not 1, the member was not counted.
--#include tasks/worker/parts/burying
--#include parts/ids
--#include parts/units
--#include tasks/workflow/parts/state
--#include tasks/workflow/parts/sending
--#include tasks/workflow/parts/progress
--#include tasks/workflow/parts/ends
local own_keys, record = tonumber(ARGV[1]), ARGV[2]
local first = read_member(own_keys + 1, 3)
local awaited = is_awaited()
local verdict = bury(first, own_keys == 12 and KEYS[12])
if verdict == 1 and awaited then member_failed(record) end
return verdict
