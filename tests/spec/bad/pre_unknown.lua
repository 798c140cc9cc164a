-- error: arithmetic on a nil, a number or an expression was expected
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return 2 ^ -i end,
  pre = function(x) return x + y end, -- HERE
}
