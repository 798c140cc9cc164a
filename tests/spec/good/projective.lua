local pe = require "pegen"
-- e3 squares to 0: e1 -> e3 and not back.
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.multivector { algebra = { 2, 0, 1 }, blades = { "e1", "e2", "e3" } },
  generators = { x = pe.turn "e13", y = pe.turn "e23" },
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
