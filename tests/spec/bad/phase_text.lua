-- error: phase of axis 'x' is 'fast' in block 0
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function() return "fast" end, -- HERE
}
