-- error: part 1: another amplitude of q than of k does not stand in 'parts'
local pe = require "pegen"
return pe.encoding {
  name = "bad", axes = { "t", "x" }, head_dim = 16,
  parts = {
    { span = { 0, 8 }, block = pe.plane(), generators = pe.turn "e12", combine = pe.sum, phase = 1,
      amplitude = { q = 1, k = 2 } }, -- HERE
  },
}
