-- error: input 'a' is of a pe.polynomial, and this description has none
local pe = require "pegen"
local a = pe.input { name = "a", shape = { 3 }, doc = "one" }
return pe.encoding { -- HERE
  name = "x", axes = { "t" }, head_dim = 8, block = pe.plane(), generators = pe.turn "e12", phase = 1,
}
