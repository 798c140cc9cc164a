-- error: the generator of axis 'x' is 5 in block 0
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = function() return 5 end, -- HERE
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
