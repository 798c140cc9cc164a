-- error: operand 's' holds 8 x 8 matrices, a change of basis of the head is 16 x 16
local pe = require "pegen"
local S = pe.learned.skew(8, { name = "s", shape = {}, from = "upper", doc = "change of basis" })
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.plane(), combine = pe.sum, phase = 1, generators = pe.turn "e12",
  basis = pe.cayley(S), -- HERE
}
