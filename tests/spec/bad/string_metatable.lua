-- error: attempt to index a nil value (field '__index')
local s = getmetatable("").__index.rep -- HERE
