-- error: pre takes 2 values; function(x) was expected: the map is the same for all blocks and heads, of q and of k
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return 2 ^ -i end,
  pre = function(x, i) return x * i end, -- HERE
}
