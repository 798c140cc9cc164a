local pe = require "pegen"
-- e1 and e2 stay among themselves under e12.
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.multivector { algebra = { 3, 0, 0 }, blades = { "e2", "e1" } },
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
