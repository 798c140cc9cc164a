-- error: operand 's' as a change of basis has a dimension of blocks; none, or "heads" alone was expected
local pe = require "pegen"
local S = pe.learned.skew(16, { name = "s", shape = { "blocks" }, from = "upper", doc = "change of basis" })
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.plane(), combine = pe.sum, phase = 1, generators = pe.turn "e12",
  basis = pe.cayley(S), -- HERE
}
