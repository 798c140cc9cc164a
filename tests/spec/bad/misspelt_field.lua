-- error: did you mean 'head_dim'?
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
  head_dims = 16, -- HERE
}
