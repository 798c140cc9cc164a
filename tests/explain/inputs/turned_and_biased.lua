-- A rotation of pairs and a bias that falls with distance: the bias decides, for a rotation keeps its size however far
-- a key is.
local pe = require "pegen"
return pe.encoding {
  name = "turned_and_biased",
  role = "pairwise",
  axes = { "t" },
  head_dim = 8,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return 10.0 ^ -i end,
  bias = function(delta) return -0.5 * pe.abs(delta.t) end,
}
