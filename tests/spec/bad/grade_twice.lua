-- error: grade 1 is listed twice
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.multivector { algebra = { 3, 0, 0 }, grades = { 1, 1 } }, -- HERE
  generators = pe.quaternion "k",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
