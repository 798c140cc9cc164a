-- error: layout puts component 0 of block 0 at 9, a channel from 0 to 7 was expected
local pe = require "pegen"
return pe.encoding {
  name = "bad", axes = { "t", "x" }, head_dim = 16,
  parts = {
    { span = { 0, 8 }, block = pe.plane(), generators = pe.turn "e12", combine = pe.sum, phase = 1,
      layout = function(_, _) return 9 end }, -- HERE
  },
}
