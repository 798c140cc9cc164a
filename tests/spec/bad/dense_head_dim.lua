-- error: 16 channels are too few for a block of 32
local pe = require "pegen"
local A = pe.learned.skew(32, { name = "a", shape = { "blocks" }, from = "upper", doc = "raw matrices" })
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.dense(32), generators = A, combine = pe.sum, phase = 1,
}
