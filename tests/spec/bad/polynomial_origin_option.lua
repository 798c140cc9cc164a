-- error: option 'origin' is '3.5,x', call or numbers separated by commas were expected
-- define: origin=3.5,x
local pe = require "pegen"
return pe.encoding { -- HERE
  name = "x", axes = { "h", "w" }, head_dim = 8,
  bias = pe.polynomial { degree = 1, value = function(delta) return delta.h end },
}
