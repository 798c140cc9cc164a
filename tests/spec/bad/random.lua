-- error: attempt to call a nil value (field 'random')
local s = math.random() -- HERE
