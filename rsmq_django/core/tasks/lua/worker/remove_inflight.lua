-- Remove messages from the record of a worker's leases; the leases then expire.
--
--   KEYS[1]  hash  messages leased by the worker (parts/strike)
--   ARGV     strikes
--#include parts/strike
return strike(KEYS[1], 1)
