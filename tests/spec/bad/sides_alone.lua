-- error: field 'sides' of pe.encoding goes with a 'block'
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x" },
  head_dim = 16,
  role = "pairwise",
  bias = function(delta) return -pe.abs(delta.x) end,
  sides = "dual", -- HERE
}
