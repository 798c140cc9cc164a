-- error: part 1: a part lacks the field 'span'
local pe = require "pegen"
return pe.encoding { -- HERE
  name = "bad", axes = { "t", "x" }, head_dim = 16,
  parts = { { block = pe.plane(), generators = pe.turn "e12", combine = pe.sum, phase = 1 } },
}
