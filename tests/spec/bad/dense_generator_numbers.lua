-- error: the generator of axis 'w' is operand 'n' of numbers in block 0; a matrix of pe.learned.skew was expected for a dense block
local pe = require "pegen"
local A = pe.learned.skew(4, { name = "a", shape = { "axes", "heads", "blocks" }, from = "upper", doc = "raw matrices" })
local n = pe.learned { name = "n", shape = { "axes", "blocks" }, doc = "numbers" }
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.dense(4), combine = pe.sum, phase = 1,
  generators = { h = A, w = n }, -- HERE
}
