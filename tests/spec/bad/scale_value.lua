-- error: a positive number
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 8,
  scale = 0, -- HERE
  bias = function(delta) return -pe.abs(delta.t) end,
}
