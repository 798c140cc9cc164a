-- As many places as a float32 tells apart; indices that are known do not count.
local pe = require "pegen"
local t = pe.learned { name = "t", shape = { 16, 1 << 20, 2 }, doc = "a table" }
return pe.encoding {
  name = "nearer", axes = { "x", "y" }, head_dim = 8,
  bias = function(delta) return t(3, pe.floor(delta.x), 1) + t(pe.floor(delta.y), 7, 0) end,
}
