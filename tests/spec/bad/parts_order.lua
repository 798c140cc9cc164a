-- error: part 2: its span begins at channel 4, the part before it ends at 7
local pe = require "pegen"
return pe.encoding {
  name = "bad", axes = { "t", "x" }, head_dim = 16,
  parts = {
    { span = { 0, 8 }, block = pe.plane(), generators = pe.turn "e12", combine = pe.sum, phase = 1 }, -- HERE
    { span = { 4, 8 }, block = pe.plane(), generators = pe.turn "e12", combine = pe.sum, phase = 1 },
  },
}
