-- error: as a phase has a dimension of 3
local pe = require "pegen"
local f = pe.learned { name = "f", shape = { "axes", "heads", "blocks", 3 }, doc = "d" }
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = f, -- HERE
}
