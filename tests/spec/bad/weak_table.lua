-- error: setmetatable: __mode is not available
-- What is left in a weak table shows when memory was collected, which differs from run to run.
local t = setmetatable({}, { __mode = "k" }) -- HERE
