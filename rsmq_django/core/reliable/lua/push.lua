-- Add messages to the end of a queue, in the order given; the first push creates the queue.
--
--   KEYS   see parts/queue: one queue
--   ARGV   delay in ms; then up to 1,000 bodies
--
-- Returns the ids, see parts/joining.
--#include parts/clock
--#include reliable/parts/queue
--#include reliable/parts/joining
local queue = queue_at(1)
local sizes = sizes_of(queue)
local delay_ms = whole_number(1, "delay_ms", 0, 1e13)
if #ARGV < 2 or #ARGV > 1001 then return redis.error_reply("RSMQ InvalidArgument push takes 1 to 1000 bodies") end
return join(KEYS[1], queue, sizes, {unpack(ARGV, 2)}, delay_ms)
