-- Strike messages off the record of what a worker holds; their leases run out then.
--
--   KEYS[1]  hash  messages leased by the worker (shared/strike)
--   ARGV     strikes
--#include shared/strike
return strike(KEYS[1], 1)
