-- error: lacks the field 'generators'
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
