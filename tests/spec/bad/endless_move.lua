-- error: attempt to call a nil value (field 'move')
local t = table.move({}, 1, math.maxinteger - 1, 2) -- HERE
