-- error: lacks the field 'name'
local pe = require "pegen"
return pe.encoding { -- HERE
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
