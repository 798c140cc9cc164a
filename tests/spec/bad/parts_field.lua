-- error: part 1: a part has no field 'basis'
local pe = require "pegen"
return pe.encoding {
  name = "bad", axes = { "t", "x" }, head_dim = 16,
  parts = {
    { span = { 0, 8 }, block = pe.plane(), generators = pe.turn "e12", combine = pe.sum, phase = 1,
      basis = 3 }, -- HERE
  },
}
