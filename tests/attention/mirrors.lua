-- Rotations of pairs about axes that one vector of the basis is orthogonal to: which one, and the planes' senses, are
-- options, and a bias stands beside them.
local pe = require "pegen"

local shared = pe.option("shared", "e3", "the vector that all planes share", { "e1", "e2", "e3" })
local planes = {
  e1 = { pe.turn "e21", pe.turn "e13" },
  e2 = { pe.turn "e12", pe.turn "e32" },
  e3 = { pe.turn "e13", pe.turn "e23" },
}

return pe.encoding {
  name = "mirrors",
  role = "pairwise",
  axes = { "h", "w" },
  head_dim = 20,
  block = pe.vector(3),
  layout = "split",
  generators = { h = planes[shared][1], w = planes[shared][2] },
  combine = pe.sum,
  phase = function(axis, i) return (axis == "h" and 0.7 or 0.3) / (i + 1) end,
  bias = function(delta) return -0.01 * pe.abs(delta.w) end,
}
