-- error: has e14, whose rotors have no inverse transpose that is one
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x" },
  head_dim = 16,
  block = pe.multivector { algebra = { 3, 0, 1 }, grades = { 1 } },
  generators = pe.bivector { e14 = 1 },
  phase = function(_, i) return 1 / (i + 1) end,
  sides = "dual", -- HERE
}
