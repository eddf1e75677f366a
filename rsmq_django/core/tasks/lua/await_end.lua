-- Note in a result record that a process waits for the end of the task, unless it has ended.
--
--   KEYS[1]  hash  result record
--   ARGV     the word of the process's channel
--
-- Returns 1 when the end will be published, 0 when the task has ended or was dropped, there is no record, or too
-- many processes wait.
local LONGEST = 400
local status, words = unpack(redis.call("HMGET", KEYS[1], "status", "awaited_by"))
if status ~= "READY" and status ~= "RUNNING" then return 0 end
words = words or ""
if (" " .. words .. " "):find(" " .. ARGV[1] .. " ", 1, true) then return 1 end
if #words + #ARGV[1] + 1 > LONGEST then return 0 end
redis.call("HSET", KEYS[1], "awaited_by", words == "" and ARGV[1] or words .. " " .. ARGV[1])
return 1
