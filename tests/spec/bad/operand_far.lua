-- error: operand 't' is read at a computed index of 50331648 places; expected at most 2^24
local pe = require "pegen"
local t = pe.learned { name = "t", shape = { 16, 1 << 20, 3 }, doc = "a table" }
return pe.encoding {
  name = "far", axes = { "x", "y" }, head_dim = 8,
  bias = function(delta) return t(pe.floor(delta.x), pe.floor(delta.y), 1) end, -- HERE
}
