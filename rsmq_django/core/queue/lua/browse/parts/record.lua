-- Read failure records without their tracebacks, which are their largest part. JSON is cut as text and never decoded here.

-- A record has up to 2,000 characters of the error's own text, each up to six bytes as JSON.
local LONGEST_RECORD_BYTES = 16384

-- Return a failure record up to the traceback, still as JSON. A record in another format is unchanged; the result is ""
-- for a long or missing record.
local function head_of(failures, id)
  local record = redis.call("HGET", failures, id) or ""
  local cut = record:find('", "traceback": "', 1, true)
  if cut then record = record:sub(1, cut) .. "}" end
  return #record <= LONGEST_RECORD_BYTES and record or ""
end
