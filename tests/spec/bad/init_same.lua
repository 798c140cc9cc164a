-- error: pe.init draws a direction over dimension 1 of 'w', which cannot be the same along it
local pe = require "pegen"

local w = pe.learned {
  name = "w", shape = { "axes", "heads", "blocks" }, doc = "speeds", init = pe.init { direction = "axes", same = { "blocks", 1 } }, -- HERE
}
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 8, heads = 2, block = pe.plane(), generators = pe.turn "e12",
  combine = pe.sum, phase = w,
}
