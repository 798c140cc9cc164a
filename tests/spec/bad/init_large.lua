-- error: 'init' of operand 'w' is a function, and the operand has 131072 elements; at most 65536 were expected
local pe = require "pegen"
local function first(row, column) return row - column end -- HERE
local w = pe.learned { name = "w", shape = { 1024, 128 }, doc = "table", init = first }
return pe.encoding {
  name = "x", role = "pairwise", axes = { "h" }, head_dim = 8, bias = function(delta) return w(delta.h, 0) end,
}
