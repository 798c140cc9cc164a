-- error: arithmetic on a skew matrix; its factor of a block and axis is what 'phase' gives
local pe = require "pegen"
local A = pe.learned.skew(4, { name = "a", shape = { "axes", "heads", "blocks" }, from = "upper", doc = "raw matrices" })
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.dense(4), combine = pe.sum, phase = 1,
  generators = function(axis, i, head) return 2 * A(axis, head, i) end, -- HERE
}
