-- Heartbeat of a consumer that processes messages.
--
--   KEYS[1]  zset  groups, scored with when they were last seen (ms)
--   KEYS[2]  zset  consumers of the group, the same
--   ARGV     group, consumer
--#include parts/clock
--#include topic/parts/group
note_consumer({groups = KEYS[1], consumers = KEYS[2], name = ARGV[1]}, ARGV[2])
return 1
