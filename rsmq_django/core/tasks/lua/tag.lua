-- Add task ids to tags, before the tasks are sent.
--
--   KEYS[1..] zset  of each tag: task id -> time at which it expires (ms)
--   ARGV     ms from now until then; task ids
--
-- Returns the number of tags.
--#include parts/clock
--#include tasks/parts/tagging
add_to_tags(KEYS, tonumber(ARGV[1]), 2, 1)
return #KEYS
