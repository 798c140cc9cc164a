-- error: which is not in the block: a grade is given whole
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.multivector { algebra = { 3, 0, 0 }, blades = { "e1", "e2" } },
  generators = pe.quaternion "i", -- HERE
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
