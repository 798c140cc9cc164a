-- error: pe.learned.skew lacks the field 'from'
local pe = require "pegen"
local A = pe.learned.skew(4, { name = "a", shape = { "blocks" }, doc = "raw matrices" }) -- HERE
return A
