-- error: __gc is not available
local t = setmetatable({}, { __gc = function() while true do end end }) -- HERE
