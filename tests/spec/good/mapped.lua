-- A map of channels of the whole head.
local pe = require "pegen"
return pe.encoding {
  name = "mapped",
  axes = { "t" },
  head_dim = 9,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return 2 ^ -i end,
  pre = function(x) return pe.exp(-x * x) * x + pe.sqrt(1 + pe.abs(x)) end,
}
