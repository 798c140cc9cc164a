-- error: a spec may have 32 operands
local pe = require "pegen"
local o = {}
for k = 0, 31 do o[k] = pe.learned { name = "o" .. k, shape = { 2 }, doc = "one of many" } end
pe.learned { name = "last", shape = { 2 }, doc = "one too many" } -- HERE
