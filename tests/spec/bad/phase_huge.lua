-- error: a phase has a factor of 1e+40, 2^100 is the most
local pe = require "pegen"
return pe.encoding { -- HERE
  name = "bad",
  axes = { "x" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return i == 2 and 1e40 or 1 end,
}
