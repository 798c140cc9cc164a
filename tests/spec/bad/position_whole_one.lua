-- error: arithmetic on a position, which has a coordinate an axis (.x, .y)
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = 1,
  position = function(r)
    return r / 2 -- HERE
  end,
}
