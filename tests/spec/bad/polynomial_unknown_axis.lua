-- error: the displacement has no axis 'w'; there is: 
local pe = require "pegen"
return pe.encoding {
  name = "x", axes = { "h", "v" }, head_dim = 8,
  bias = pe.polynomial {
    degree = 1,
    value = function(delta)
      return delta.w -- HERE
    end,
  },
}
