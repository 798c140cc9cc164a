-- error: pe.schur is for blocks of pe.dense, whose generators have a basis of their own
local pe = require "pegen"
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.plane(), combine = pe.sum, phase = 1, generators = pe.turn "e12",
  basis = pe.schur, -- HERE
}
