-- Count a member as succeeded whose call was not sent, because it was a duplicate.
--
--   KEYS     the keys of the workflow (parts/state) and of its targets (parts/sending)
--   ARGV     member (parts/progress), value (JSON)
--
-- Returns 1; 0 when the workflow does not wait for it.
--#include parts/clock
--#include parts/counters
--#include parts/ids
--#include parts/units
--#include tasks/workflow/parts/state
--#include tasks/workflow/parts/sending
--#include tasks/workflow/parts/progress
--#include tasks/workflow/parts/ends
local at = read_member(1, 1)
if not is_awaited() then return 0 end
member_succeeded(ARGV[at])
return 1
