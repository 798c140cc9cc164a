-- error: a name of letters, digits and _
local pe = require "pegen"
return pe.encoding {
  name = 5,
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
