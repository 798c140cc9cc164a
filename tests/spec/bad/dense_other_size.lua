-- error: the generator of axis 'h' is of operand 'a', whose matrices are 4 x 4; 8 x 8 was expected for pe.dense(8)
local pe = require "pegen"
local A = pe.learned.skew(4, { name = "a", shape = { "axes", "heads", "blocks" }, from = "upper", doc = "raw matrices" })
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.dense(8), combine = pe.sum, phase = 1,
  generators = A, -- HERE
}
