-- error: pe.product combines rotors; for dense blocks pe.sum or pe.mean was expected
local pe = require "pegen"
local A = pe.learned.skew(4, { name = "a", shape = { "axes", "heads", "blocks" }, from = "upper", doc = "raw matrices" })
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.dense(4), phase = 1, generators = A,
  combine = pe.product { "h", "w" }, -- HERE
}
