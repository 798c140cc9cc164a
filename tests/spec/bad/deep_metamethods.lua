-- error: C stack overflow
local t = {}
setmetatable(t, { __index = function(_, k) return ("x"):gsub("x", function() return t[k] end) end })
local x = t.a
