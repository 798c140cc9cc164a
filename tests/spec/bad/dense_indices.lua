-- error: operand 'a' takes 3 indices (axes, heads, blocks), it was given 2
local pe = require "pegen"
local A = pe.learned.skew(4, { name = "a", shape = { "axes", "heads", "blocks" }, from = "upper", doc = "raw matrices" })
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.dense(4), combine = pe.sum, phase = 1,
  generators = function(axis, i) return A(axis, i) end, -- HERE
}
