-- error: attempt to index a nil value (global 'nothing')
local pe = require "pegen"
local x = nothing.field -- HERE
