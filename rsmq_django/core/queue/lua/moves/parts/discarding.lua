-- Delete messages with all our additional data of them.
--#include parts/remove
local function discard(messages, settings, failures, releases, ids)
  if #ids == 0 then return end
  remove(messages, settings, ids)
  redis.call("HDEL", failures, unpack(ids))
  redis.call("HDEL", releases, unpack(release_fields(ids)))
end
