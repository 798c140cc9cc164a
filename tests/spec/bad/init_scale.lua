-- error: field 'scale' of pe.init is for what is drawn; a value needs none
local pe = require "pegen"

local w = pe.learned {
  name = "w", shape = { "axes", "heads", "blocks" }, doc = "speeds", init = pe.init { value = 1, scale = 2 }, -- HERE
}
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 8, heads = 2, block = pe.plane(), generators = pe.turn "e12",
  combine = pe.sum, phase = w,
}
