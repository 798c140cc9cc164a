-- error: in block 0 of head 1
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  heads = 2,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, _, head) return 1 / (1 - head) end, -- HERE
}
