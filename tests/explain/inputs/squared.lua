-- Phases of x^2 + y^2: scores know nothing of direction about the origin, and are not relative.
local pe = require "pegen"
return pe.encoding {
  name = "squared",
  axes = { "x", "y" },
  head_dim = 8,
  heads = 2,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i, head) return (1 + head) * 0.5 ^ i end,
  position = function(_, r) return r * r end,
}
