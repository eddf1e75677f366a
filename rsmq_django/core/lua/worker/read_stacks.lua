-- Read where the running tasks of a worker process are in their code. Read-only.
--
--   KEYS[1]  string  the answer of the process
--
-- Returns the answer, "" for none.
return redis.call("GET", KEYS[1]) or ""
