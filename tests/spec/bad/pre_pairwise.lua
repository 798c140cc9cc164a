-- error: field 'pre' is for separable encodings
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return 2 ^ -i end,
  role = "pairwise",
  pre = pe.tanh, -- HERE
}
