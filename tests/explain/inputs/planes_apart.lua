-- Two axes in planes that share no vector: they commute though they are no multiples of one another.
local pe = require "pegen"
return pe.encoding {
  name = "planes_apart",
  axes = { "x", "y" },
  head_dim = 8,
  block = pe.vector(4),
  generators = { x = pe.turn "e12", y = pe.turn "e34" },
  combine = pe.product { "x", "y" },
  phase = function(_, i) return 2.0 ^ -i end,
}
