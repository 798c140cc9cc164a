-- error: without a metatable
local t = table.concat(setmetatable({}, { __index = type }), "", 1, 1 << 60) -- HERE
