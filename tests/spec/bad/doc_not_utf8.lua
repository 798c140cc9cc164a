-- error: a text without bytes that are no UTF-8 was expected
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  doc = "caf\xe9", -- HERE
  axes = { "x" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
