-- error: arithmetic on operand 'w', a whole tensor; an element of it is w(axis, i)
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { "axes", "blocks" }, doc = "weights" }
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(axis, i)
    return 2 * w -- HERE
  end,
}
