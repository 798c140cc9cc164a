-- error: grade 4 of an algebra of 3 dimensions
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.multivector { algebra = { 3, 0, 0 }, grades = { 4 } }, -- HERE
  generators = pe.quaternion "k",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
