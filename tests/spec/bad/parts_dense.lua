-- error: part 1: blocks of pe.dense do not stand in 'parts'
local pe = require "pegen"
return pe.encoding {
  name = "bad", axes = { "t", "x" }, head_dim = 16,
  parts = {
    { span = { 0, 8 }, block = pe.dense(4), generators = pe.turn "e12", combine = pe.sum, phase = 1 }, -- HERE
  },
}
