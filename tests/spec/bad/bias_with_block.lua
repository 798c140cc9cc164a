-- error: field 'block' of pe.encoding goes with rotations
local pe = require "pegen"
return pe.encoding {
  name = "x", axes = { "h" }, head_dim = 8,
  block = pe.plane(), -- HERE
  bias = pe.polynomial { degree = 1, value = function(delta) return delta.h end },
}
