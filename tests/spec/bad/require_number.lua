-- error: require takes a name
local s = require(5) -- HERE
