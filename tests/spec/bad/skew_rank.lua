-- error: field 'shape' of pe.learned.skew is a table, 0 to 4 dimensions was expected
local pe = require "pegen"
local A = pe.learned.skew(4, {
  name = "a", from = "upper", doc = "raw matrices",
  shape = { "axes", "heads", "blocks", 2, 2 }, -- HERE
})
return A
