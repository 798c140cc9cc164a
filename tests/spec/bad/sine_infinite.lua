-- error: an angle is not finite
local pe = require "pegen"
return pe.encoding { -- HERE
  name = "bad",
  axes = { "x" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = 1,
  position = function(_, r) return r + pe.sin(pe.exp(r * 0 + 1000)) end,
}
