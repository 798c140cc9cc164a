-- error: a whole number from 1 to 4096
math.type = function() return "integer" end
math.tointeger = function() return 16 end
type = function() return "number" end
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = -5, -- HERE
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
