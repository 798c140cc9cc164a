-- error: without a metatable
table.insert(setmetatable({}, { __len = function() return 1 << 60 end }), 1, 1) -- HERE
