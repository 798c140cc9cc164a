-- error: operand 'late' is declared inside a function that pe.encoding calls; expected before it
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function() return pe.learned { name = "late", shape = { 1 }, doc = "too late" }(0) end, -- HERE
}
