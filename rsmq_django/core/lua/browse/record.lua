-- Read failure records without their tracebacks, which make up most of them. JSON is cut as text and never decoded here.

-- A record holds at most 2,000 characters of the error's own text, each up to six bytes as JSON.
local LONGEST_RECORD_BYTES = 16384

-- Return a failure record up to the traceback, still as JSON. One of another make comes as it is; a long one, and one
-- that is absent, is "".
local function head_of(failures, id)
  local record = redis.call("HGET", failures, id) or ""
  local cut = record:find('", "traceback": "', 1, true)
  if cut then record = record:sub(1, cut) .. "}" end
  return #record <= LONGEST_RECORD_BYTES and record or ""
end
