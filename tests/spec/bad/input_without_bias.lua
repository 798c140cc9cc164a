-- error: input 'a' is read by no phase, amplitude or generator
local pe = require "pegen"
local a = pe.input { name = "a", shape = { 3 }, doc = "one" }
return pe.encoding { -- HERE
  name = "x", axes = { "t" }, head_dim = 8, block = pe.plane(), generators = pe.turn "e12", phase = 1,
}
