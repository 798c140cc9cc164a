-- error: 'same' of pe.init names dimension 3 of 'w' twice
local pe = require "pegen"

local w = pe.learned {
  name = "w", shape = { "axes", "heads", "blocks" }, doc = "speeds", init = pe.init { direction = "axes", same = { "blocks", "heads", 3 } }, -- HERE
}
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 8, heads = 2, block = pe.plane(), generators = pe.turn "e12",
  combine = pe.sum, phase = w,
}
