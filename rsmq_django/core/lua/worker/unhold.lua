-- Strike messages off the record of what a worker holds; their leases run out then.
--
--   KEYS[1]  hash  message id -> "receive count queue"
--   ARGV     ids
return redis.call("HDEL", KEYS[1], unpack(ARGV))
