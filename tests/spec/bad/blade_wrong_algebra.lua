-- error: blade e4 is not of this algebra
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.multivector { algebra = { 3, 0, 0 }, blades = { "e1", "e2", "e3", "e4" } }, -- HERE
  generators = pe.quaternion "k",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
