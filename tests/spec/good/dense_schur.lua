-- One matrix a block, used by one axis a block or by all with a multiplier; output in its own basis.
local pe = require "pegen"
local F = pe.learned.skew(4, { name = "f", shape = { "heads", "blocks" }, from = "difference", doc = "raw matrices" })
local m = pe.learned { name = "m", shape = { "axes", "blocks" }, doc = "multiplier" }
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16, heads = 3, block = pe.dense(4), layout = "split",
  generators = { h = F, w = function(_, i, head) return F(head, i) end },
  combine = pe.sum, phase = function(axis, i) return (axis == "h" and 1 or 0) * m(axis, i) end, basis = pe.schur,
}
