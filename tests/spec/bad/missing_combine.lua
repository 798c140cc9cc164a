-- error: lacks the field 'combine'
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return 1 / (i + 1) end,
}
