-- error: field 'pre' of pe.encoding is 'softplus', function(x), the new value of a channel was expected
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return 2 ^ -i end,
  pre = "softplus", -- HERE
}
