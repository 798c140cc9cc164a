-- error: a bivector times
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = function(_, i) return pe.turn "e12" * (0 / i) end,
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
