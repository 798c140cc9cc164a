-- error: the axis 'y' has no generator
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = { x = pe.turn "e12" }, -- HERE
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
