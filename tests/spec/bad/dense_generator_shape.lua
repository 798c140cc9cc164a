-- error: operand 'a' as a generator has a dimension of 3; only axes, heads and blocks were expected
local pe = require "pegen"
local A = pe.learned.skew(4, { name = "a", shape = { 3 }, from = "upper", doc = "raw matrices" })
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.dense(4), combine = pe.sum, phase = 1,
  generators = A, -- HERE
}
