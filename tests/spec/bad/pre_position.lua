-- error: pre reads more than x; a map of channels is made of x and numbers, not of positions, operands or inputs
local pe = require "pegen"
local place
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return 2 ^ -i end,
  position = function(_, r) place = r; return r end,
  pre = function(x) return x * place end, -- HERE
}
