-- error: field 'basis' of pe.encoding is 'schur', pe.schur or pe.cayley(operand) was expected
local pe = require "pegen"
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.plane(), combine = pe.sum, phase = 1, generators = pe.turn "e12",
  basis = "schur", -- HERE
}
