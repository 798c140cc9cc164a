-- error: field 'bias' of pe.encoding goes with role = "pairwise"
local pe = require "pegen"
return pe.encoding {
  name = "x", axes = { "h" }, head_dim = 8, role = "separable",
  block = pe.plane(), generators = pe.turn "e12", phase = 1,
  bias = function(delta) return delta.h end, -- HERE
}
