-- error: turns e13, but the block
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.quaternion "j", -- HERE
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
