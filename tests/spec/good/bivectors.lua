local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.vector(4),
  generators = {
    x = pe.bivector { e12 = 1, e43 = 0.5 },
    y = -(pe.turn "e13" * 2 - pe.turn "e24" / 3),
  },
  combine = pe.symmetric { "y", "x" },
  phase = function(_, i) return 1 / (i + 1) end,
}
