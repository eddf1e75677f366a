-- Read the stacks of a worker process's running tasks. Read-only.
--
--   KEYS[1]  string  the reply of the process
--
-- Returns the reply, "" for none.
return redis.call("GET", KEYS[1]) or ""
