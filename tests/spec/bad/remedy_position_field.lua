-- error: '.h' of an expression, which is one number
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "h", "w" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = 1,
  position = function(axis, r)
    return r.h -- HERE
  end,
}
