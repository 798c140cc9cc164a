-- error: the spec raised a userdata as an error
local pe = require "pegen"
error(pe.encoding { -- HERE
  name = "bad",
  axes = { "x" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
})
