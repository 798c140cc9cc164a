-- error: position is another list; of function(r), a list of 2 expressions, one an axis, was expected
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = 1,
  position = function(r) return { r.x } end, -- HERE
}
