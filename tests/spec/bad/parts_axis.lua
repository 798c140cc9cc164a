-- error: part 1: a part reads the axis 'y'; there is: t, x
local pe = require "pegen"
return pe.encoding {
  name = "bad", head_dim = 16,
  axes = { "t", "x" }, -- HERE
  parts = { { span = { 0, 8 }, axes = { "y" }, block = pe.plane(), generators = pe.turn "e12", combine = pe.sum, phase = 1 } },
}
