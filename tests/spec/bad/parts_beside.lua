-- error: field 'phase' of pe.encoding stands beside 'parts'
local pe = require "pegen"
return pe.encoding {
  name = "bad", axes = { "t", "x" }, head_dim = 16,
  phase = 1, -- HERE
  parts = { { span = { 0, 8 }, block = pe.plane(), generators = pe.turn "e12", combine = pe.sum, phase = 1 } },
}
