-- error: pe.learned.skew(1, ...): a size of its matrices from 2 to 4096 was expected
local pe = require "pegen"
local A = pe.learned.skew(1, { name = "a", shape = { "blocks" }, from = "upper", doc = "raw matrices" }) -- HERE
return A
