-- error: has another form in block 1 than in block 0
local pe = require "pegen"
local f = pe.learned { name = "f", shape = { "blocks" }, doc = "d" }
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return i == 0 and f(0) or 2 end, -- HERE
}
