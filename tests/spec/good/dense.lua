-- Dense blocks: one operand for all axes, channels left over, a change of basis, a mean.
local pe = require "pegen"
local raw = pe.learned.skew(5, { name = "raw", shape = { "axes", "heads", "blocks" }, from = "upper", doc = "raw matrices" })
local S = pe.learned.skew(16, { name = "s", shape = { "heads" }, from = "difference", doc = "change of basis" })
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16, heads = 2, block = pe.dense(5),
  generators = raw, combine = pe.mean, phase = 1, basis = pe.cayley(S),
}
