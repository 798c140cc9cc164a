-- error: phase is operand 'a', which holds skew matrices; numbers were expected
local pe = require "pegen"
local A = pe.learned.skew(4, { name = "a", shape = { "axes", "heads", "blocks" }, from = "upper", doc = "raw matrices" })
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.dense(4), combine = pe.sum, generators = A,
  phase = A, -- HERE
}
