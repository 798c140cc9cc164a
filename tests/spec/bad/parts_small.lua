-- error: part 2: 1 channels are too few for a block of 2
local pe = require "pegen"
return pe.encoding {
  name = "bad", axes = { "t", "x" }, head_dim = 16,
  parts = {
    { span = { 0, 8 }, block = pe.plane(), generators = pe.turn "e12", combine = pe.sum, phase = 1 }, -- HERE
    { span = { 8, 1 }, block = pe.plane(), generators = pe.turn "e12", combine = pe.sum, phase = 1 },
  },
}
