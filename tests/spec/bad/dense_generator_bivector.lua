-- error: the generator of axis 'h' is a bivector in block 0; a matrix of pe.learned.skew was expected for a dense block
local pe = require "pegen"
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.dense(2), combine = pe.sum, phase = 1,
  generators = pe.turn "e12", -- HERE
}
