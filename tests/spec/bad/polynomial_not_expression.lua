-- error: the polynomial's value is 'text' in term 0
local pe = require "pegen"
return pe.encoding {
  name = "x", axes = { "h" }, head_dim = 8,
  bias = pe.polynomial {
    degree = 1,
    value = function(delta) return "text" end, -- HERE
  },
}
