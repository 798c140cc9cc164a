-- error: field 'axes' of pe.encoding is a table, a list of names was expected
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", nil, "y" }, -- HERE
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
