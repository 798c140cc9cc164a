-- error: field 'degree' of pe.polynomial is 17, a whole number from 1 to 16 was expected
local pe = require "pegen"
return pe.encoding {
  name = "x", axes = { "h" }, head_dim = 8,
  bias = pe.polynomial {
    degree = 17, -- HERE
    value = function(delta) return delta.h end,
  },
}
