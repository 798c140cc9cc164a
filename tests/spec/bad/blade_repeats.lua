-- error: 'e11' is no blade
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.multivector { algebra = { 3, 0, 0 }, blades = { "e11" } }, -- HERE
  generators = pe.quaternion "k",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
