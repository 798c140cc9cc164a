-- error: phase of axis 't' is a whole operand in block 0
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { "blocks" }, doc = "weights" }
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(axis, i) return w end, -- HERE
}
