-- error: field 'name' of pe.encoding
local pe = require "pegen"
return pe.encoding {
  name = "no-identifier", -- HERE
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
