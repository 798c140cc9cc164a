-- error: field 'scale' of pe.encoding goes with role = "pairwise"
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 8,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return 1 end,
  scale = 1, -- HERE
}
