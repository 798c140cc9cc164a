-- error: operand 'w' has elements only inside the functions that pe.encoding calls
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { "blocks" }, doc = "weights" }
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return 2 ^ -i end,
  pre = function(x) return x * w(0) end, -- HERE
}
