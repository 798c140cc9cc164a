-- error: a pair has one displacement
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x" },
  head_dim = 16,
  role = "pairwise",
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = 1,
  sides = "dual", -- HERE
}
