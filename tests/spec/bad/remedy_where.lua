-- error: pe.where takes four values, it was given 3: pe.where(x, y, a, b) is a where x < y, else b
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  bias = function(d)
    return pe.where(d.t, 0, pe.masked) -- HERE
  end,
}
