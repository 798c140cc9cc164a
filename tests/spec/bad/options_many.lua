-- error: a spec may have 256 options
local pe = require "pegen"
for i = 1, 1e6 do pe.option("o" .. i, 1, "one of many") end -- HERE
