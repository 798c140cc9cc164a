-- error: the generator of axis 'h' is operand 'a' of skew matrices (for blocks of pe.dense); a bivector was expected
local pe = require "pegen"
local A = pe.learned.skew(4, { name = "a", shape = { "axes", "heads", "blocks" }, from = "upper", doc = "raw matrices" })
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.plane(), combine = pe.sum, phase = 1,
  generators = A, -- HERE
}
