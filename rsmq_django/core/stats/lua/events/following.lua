-- Read events of the log in order.
--
--   KEYS[1]  stream  the event log
--   ARGV     id of the first entry ("-", or "(id" for the entries after it), maximum number (up to 1,000)
--
-- Returns entries as XRANGE does. Redis 6.2 and later.
return redis.call("XRANGE", KEYS[1], ARGV[1], "+", "COUNT", ARGV[2])
