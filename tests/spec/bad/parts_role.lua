-- error: expected role = "separable"
local pe = require "pegen"
return pe.encoding {
  name = "bad", axes = { "t", "x" }, head_dim = 16,
  role = "pairwise",
  parts = { { span = { 0, 8 }, block = pe.plane(), generators = pe.turn "e12", combine = pe.sum, phase = 1 } }, -- HERE
}
