-- error: turns and boosts at once
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x" },
  head_dim = 16,
  block = pe.multivector { algebra = { 2, 1, 0 }, grades = { 1 } },
  generators = pe.bivector { e12 = 1, e13 = 1 },
  phase = function(_, i) return 1 / (i + 1) end,
  sides = "dual", -- HERE
}
