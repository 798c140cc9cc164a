-- error: math.exp takes numbers, and an expression has no value yet; pe.exp takes both
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  bias = function(d)
    return math.exp(-d.t) -- HERE
  end,
}
