-- error: the position has no axis 'w'; there is: 
local pe = require "pegen"
return pe.encoding {
  name = "x", axes = { "h" }, head_dim = 8,
  add = function(r, c)
    return r.w -- HERE
  end,
}
