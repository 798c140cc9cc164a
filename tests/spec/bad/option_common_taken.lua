-- error: option 'grid' is declared twice
local pe = require "pegen"
local g = pe.option("grid", {}, "mine")
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
