-- error: part 2: operand 'f' is of 4 blocks where another part read it, which is of 2 here
local pe = require "pegen"
local f = pe.learned { name = "f", shape = { "blocks" }, doc = "x" }
local function phase(_, i) return f(i) end -- HERE
return pe.encoding {
  name = "bad", axes = { "t", "x" }, head_dim = 16,
  parts = {
    { span = { 0, 8 }, axes = { "t" }, block = pe.plane(), generators = pe.turn "e12", phase = phase },
    { span = { 8, 4 }, axes = { "x" }, block = pe.plane(), generators = pe.turn "e12", phase = phase },
  },
}
