-- error: the origin has 1 coordinates, one for each of the 2 axes was expected
local pe = require "pegen"
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 8,
  bias = pe.polynomial {
    degree = 1,
    origin = { 3.5 }, -- HERE
    value = function(delta) return delta.h end,
  },
}
