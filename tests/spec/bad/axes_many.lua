-- error: a list of 1 to 8 names
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "a", "b", "c", "d", "e", "f", "g", "h", "i" }, -- HERE
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
