-- Strike messages off the record of what a worker holds; their leases run out then.
--
--   KEYS[1]  hash  what the worker holds (shared/strike)
--   ARGV     strikes
--#include shared/strike
return strike(KEYS[1], 1)
