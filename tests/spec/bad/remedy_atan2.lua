-- error: pe.atan2 takes two values, it was given 1: pe.atan2(y, x) is the angle of (x, y) from (1, 0)
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  bias = function(d)
    return pe.atan2(d.y / d.x) -- HERE
  end,
}
