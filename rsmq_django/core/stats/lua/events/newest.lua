-- Read events of the log backwards, newest first.
--
--   KEYS[1]  stream  the event log
--   ARGV     id of the last entry ("+", or "(id" for the entries before it), maximum number (up to 1,000)
--
-- Returns entries as XREVRANGE does. Redis 6.2 and later.
return redis.call("XREVRANGE", KEYS[1], ARGV[1], "-", "COUNT", ARGV[2])
