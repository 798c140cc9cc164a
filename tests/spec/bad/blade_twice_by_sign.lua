-- error: are the same but for the sign
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.multivector { algebra = { 3, 0, 0 }, blades = { "e12", "e31", "e23", "e13" } }, -- HERE
  generators = pe.quaternion "k",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
